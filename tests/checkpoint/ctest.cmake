# A background save starts a thread: save_async_test and save_queue_test are tried under the thread sanitizer by hand, the others
# would cost its run a minute. Some make figures.
set(chunkmem_labels figures)
