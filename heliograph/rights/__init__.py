"""Works out which rights a flow needs on its clusters and which are missing, and writes them for administrators."""
