# A background save starts a thread: the thread sanitizer runs these. Some make figures.
set(chunkmem_labels threads figures)
