# Some of these tests make figures.
set(chunkmem_labels figures)
