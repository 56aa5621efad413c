"""Cold storage: files of old rows, and the place where they lie."""
