"""Cold storage: old rows in files, and the storage that holds them."""
