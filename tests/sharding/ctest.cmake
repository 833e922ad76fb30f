# Ranks are threads: the thread sanitizer runs them. Some make figures.
set(chunkmem_labels threads figures)
