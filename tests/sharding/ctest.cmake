# Ranks are threads: the thread sanitizer runs them.
set(chunkmem_labels threads)
