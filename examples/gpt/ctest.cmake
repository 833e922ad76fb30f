# Where the text comes from on a machine without /usr/share/common-licenses: this repository's own documentation.
set(chunkmem_compile_options "-DCHUNKMEM_SOURCE_DIR=\"${PROJECT_SOURCE_DIR}\"")
