// SPDX-License-Identifier: Apache-2.0
// A model in chunks, for a trainer in C. Layers have weights and an output each, of as many floats. Every function but
// those that free returns CHUNKS_OK or another code, and chunks_error then says why.
#ifndef CHUNKS_H
#define CHUNKS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct chunk_model chunk_model;  // the model of one rank
typedef struct chunk_group chunk_group;  // ranks that are threads; outlives their models

enum chunks_code {
  CHUNKS_OK,
  CHUNKS_WRONG_CALL,  // a mistake of the caller, or an impossible setting
  CHUNKS_NO_MEMORY,   // the device, the host or the heap is too small
  CHUNKS_BAD_FILE,    // a checkpoint cannot be read or written
  CHUNKS_LOST_RANK,   // another rank failed or did not come
  CHUNKS_STOPPED      // a function of the trainer did not return 0
};
enum chunks_kind {
  CHUNKS_WEIGHT,    // to read
  CHUNKS_FIRST,     // a weight to write, before the first step
  CHUNKS_GRADIENT,  // to add to: zeros at first
  CHUNKS_INPUT,     // of a layer, to read
  CHUNKS_OUTPUT,    // of a layer, to write; number 0 is the batch, number k the output of layer k - 1
  CHUNKS_KINDS
};

int chunks_group_new(chunk_group** group, uint32_t ranks);
void chunks_group_free(chunk_group* group);

int chunks_new(chunk_model** model, chunk_group* group, uint32_t rank, uint32_t layers, uint64_t floats,
               uint64_t device, uint64_t host);
void chunks_free(chunk_model* model);
// The text of the model's last failed call. With null: of the last call of this thread that failed without a model,
// such as chunks_new.
const char* chunks_error(const chunk_model* model);

// The address is good until chunks_unpin. One pin of a kind at a time.
int chunks_pin(chunk_model* model, enum chunks_kind kind, uint32_t number, float** address);
int chunks_unpin(chunk_model* model, enum chunks_kind kind);
int chunks_drop(chunk_model* model, uint32_t number);  // an output, after its last reader

// A step: both passes, then Adam. Every rank calls it.
typedef int (*chunks_pass)(chunk_model* model, void* trainer);
int chunks_step(chunk_model* model, chunks_pass forward, chunks_pass backward, void* trainer, float rate);
// The same step on scratch bytes: nothing is trained. Writes the smallest device and host that a step works with
// [bytes].
int chunks_rehearse(chunk_model* model, chunks_pass forward, chunks_pass backward, void* trainer, uint64_t* device,
                    uint64_t* host);

// Saves the model and the number of its completed steps. Every rank calls both functions.
int chunks_save(chunk_model* model, const char* folder);
int chunks_load(chunk_model* model, const char* folder, uint64_t* steps);  // 0 steps: nothing was saved yet

#ifdef __cplusplus
}
#endif

#endif
