"""Which rights a flow needs on its clusters, which are granted, which are missing; as text for administrators."""
