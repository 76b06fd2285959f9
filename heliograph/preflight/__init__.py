"""Checks real clusters before a start: steps with a verdict and a remedy. Changes nothing."""
