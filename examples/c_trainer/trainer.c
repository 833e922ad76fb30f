// SPDX-License-Identifier: Apache-2.0
// A trainer in C on the functions of chunks.h. Layers scale their input number by number, and the loss is half the
// squared distance of the last output from 1. It trains on one rank and on two, each with rows of its own, ends half way
// and goes on from a checkpoint with the same bits.
#include "chunks.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { layers = 6, floats = 4096, steps = 12, ranks_at_most = 2 };

struct trainer {
  uint32_t rank;
  uint64_t step;  // of the data
  float loss;
  const float* last_weight;  // of the layer that runs: a pointer of the trainer into a pin
  float slope[floats];       // scratch of its own
};

static int forward(chunk_model* model, void* data)
{
  struct trainer* t = data;
  float *in, *out, *w;
  if (chunks_pin(model, CHUNKS_OUTPUT, 0, &out)) return 1;
  for (int i = 0; i < floats; ++i) out[i] = 0.9F + 0.001F * (float)((i + 7 * t->step + 3 * t->rank) % 100);
  for (uint32_t l = 0; l < layers; ++l) {
    if (chunks_unpin(model, CHUNKS_OUTPUT) || chunks_pin(model, CHUNKS_INPUT, l, &in) ||
        chunks_pin(model, CHUNKS_WEIGHT, l, &w) || chunks_pin(model, CHUNKS_OUTPUT, l + 1, &out))
      return 1;
    t->last_weight = w;
    for (int i = 0; i < floats; ++i) out[i] = t->last_weight[i] * in[i];
  }
  t->loss = 0;
  for (int i = 0; i < floats; ++i) {
    t->slope[i] = out[i] - 1;
    t->loss += 0.5F * t->slope[i] * t->slope[i] / floats;
  }
  ++t->step;
  return 0;
}

static int backward(chunk_model* model, void* data)
{
  struct trainer* t = data;
  float *in, *w, *g;
  for (uint32_t l = layers; l-- > 0;) {
    if (chunks_drop(model, l + 1) || chunks_pin(model, CHUNKS_INPUT, l, &in) ||
        chunks_pin(model, CHUNKS_GRADIENT, l, &g))
      return 1;
    for (int i = 0; i < floats; ++i) g[i] += t->slope[i] * in[i];
    if (chunks_unpin(model, CHUNKS_GRADIENT) || chunks_unpin(model, CHUNKS_INPUT) ||
        chunks_pin(model, CHUNKS_WEIGHT, l, &w))
      return 1;
    for (int i = 0; i < floats; ++i) t->slope[i] *= w[i];
    if (chunks_unpin(model, CHUNKS_WEIGHT)) return 1;
  }
  return chunks_drop(model, 0);
}

static int fill(chunk_model* model)
{
  for (uint32_t l = 0; l < layers; ++l) {
    float* w;
    if (chunks_pin(model, CHUNKS_FIRST, l, &w)) return 1;
    for (int i = 0; i < floats; ++i) w[i] = 1.1F;
    if (chunks_unpin(model, CHUNKS_FIRST)) return 1;
  }
  return 0;
}

struct job {
  pthread_t thread;
  chunk_group* group;
  uint32_t rank;
  const char* folder;  // null: no checkpoint
  uint64_t until;      // steps
  uint64_t device;
  int failed;
  uint64_t least_device;
  float first_loss, last_loss;
  float weights[layers * floats];
};

static void* run_rank(void* data)
{
  struct job* job = data;
  struct trainer* t = calloc(1, sizeof *t);
  struct trainer* copy = calloc(1, sizeof *copy);
  chunk_model* model = NULL;
  uint64_t host, done = 0;
  job->failed = 1;
  if (t == NULL || copy == NULL || chunks_new(&model, job->group, job->rank, layers, floats, job->device, 4 << 20))
    goto end;
  // A rehearsal runs the passes too: it counts the steps of the struct and leaves addresses of scratch bytes in it. So it
  // is given a copy.
  t->rank = job->rank;
  *copy = *t;
  if (chunks_rehearse(model, forward, backward, copy, &job->least_device, &host)) goto end;
  if (job->folder != NULL && chunks_load(model, job->folder, &done)) goto end;
  if (done == 0 && fill(model)) goto end;
  for (t->step = done; t->step < job->until;) {
    if (chunks_step(model, forward, backward, t, 0.01F)) goto end;
    if (t->step == done + 1) job->first_loss = t->loss;
  }
  job->last_loss = t->loss;
  if (job->folder != NULL && chunks_save(model, job->folder)) goto end;
  for (uint32_t l = 0; l < layers; ++l) {
    float* w;
    if (chunks_pin(model, CHUNKS_WEIGHT, l, &w)) goto end;
    memcpy(job->weights + l * floats, w, floats * sizeof *w);
    if (chunks_unpin(model, CHUNKS_WEIGHT)) goto end;
  }
  job->failed = 0;
end:
  if (job->failed) fprintf(stderr, "rank %u: %s\n", job->rank, chunks_error(model));
  chunks_free(model);
  free(copy);
  free(t);
  return NULL;
}

// Trains up to a number of steps. The device is the least of a step, after a first run on a large one.
static int train(struct job* jobs, uint32_t ranks, const char* folder, uint64_t until, uint64_t device)
{
  chunk_group* group;
  int failed = 0;
  if (chunks_group_new(&group, ranks)) return 1;
  for (uint32_t r = 0; r < ranks; ++r) {
    jobs[r].group = group;
    jobs[r].rank = r;
    jobs[r].folder = folder;
    jobs[r].until = until;
    jobs[r].device = device;
    if (pthread_create(&jobs[r].thread, NULL, run_rank, &jobs[r])) abort();
  }
  for (uint32_t r = 0; r < ranks; ++r) {
    pthread_join(jobs[r].thread, NULL);
    failed |= jobs[r].failed;
  }
  chunks_group_free(group);
  return failed;
}

int main(int count, char** words)
{
  if (count != 3) return fprintf(stderr, "usage: c_trainer FOLDER_OF_ONE FOLDER_OF_TWO (both empty)\n"), 2;
  static struct job whole[ranks_at_most], parted[ranks_at_most];
  for (uint32_t ranks = 1; ranks <= ranks_at_most; ++ranks) {
    const char* folder = words[ranks];
    if (train(whole, ranks, NULL, steps, 4 << 20)) return 1;
    const uint64_t least = whole[0].least_device;
    if (train(parted, ranks, folder, steps / 2, least) || train(parted, ranks, folder, steps, least)) return 1;
    for (uint32_t r = 0; r < ranks; ++r)
      if (memcmp(whole[0].weights, whole[r].weights, sizeof whole[0].weights) != 0 ||
          memcmp(whole[0].weights, parted[r].weights, sizeof whole[0].weights) != 0)
        return fprintf(stderr, "other bits on rank %u of %u\n", r, ranks), 1;
    printf("%u ranks: loss %.5f, then %.5f, on a device of %llu B\n", ranks, (double)whole[0].first_loss,
           (double)whole[0].last_loss, (unsigned long long)least);
    if (!(whole[0].last_loss < whole[0].first_loss)) return 1;
  }
  return 0;
}
