"""One application, two kinds of process: an API that takes leads, and workers that pass them on."""
