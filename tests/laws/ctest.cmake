# Wrong policies, and the laws that name their mistakes. It counts allocations and ranks are threads that may wait for a deadline: no
# sanitizer needs it. It makes a figure.
set(chunkmem_labels figures)
set(chunkmem_unsanitized ON)
