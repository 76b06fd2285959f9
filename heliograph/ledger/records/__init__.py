"""The kinds of ledger records, a file each: dataclass, key, encode, parse; `table` lists them all."""
