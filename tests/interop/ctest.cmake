# Tensors come back from threads of their consumers; nothing else here starts one.
set(chunkmem_labels threads)
if("thread" IN_LIST CHUNKMEM_SANITIZE)
  set(chunkmem_unsanitized ON)
  set(chunkmem_sanitized_files "dlpack_returns_test.cpp")
endif()
