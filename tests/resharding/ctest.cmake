# Ranks are threads: the thread sanitizer runs what they do together, here for bad input alone. Some make figures.
set(chunkmem_labels threads figures)
set(chunkmem_unsanitized ON)
