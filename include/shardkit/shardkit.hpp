// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/hide_macros.inc>

// What trainers begin with. With SHARDKIT_COMPILED it is declarations, and the rest is compiled once: see
// compiled.hpp. Otherwise these headers include the others. docs/reference.md lists the public names. For who needs
// them, each a line of its own: plan.hpp, checkpoint.hpp, schedule.hpp, muon.hpp, rules.hpp, moving_average.hpp,
// verify.hpp, local_shards.hpp, tensor_parallel.hpp, context_parallel.hpp, expert_parallel.hpp, verbs.hpp.
// Engines that need a library: mpi.hpp, nccl.hpp.

#ifdef SHARDKIT_COMPILED
#include <shardkit/compiled/trainer.hpp>
#else

// Elements of tensors, and errors.
#include <shardkit/core/bf16.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/core/fp16.hpp>
#include <shardkit/core/version.hpp>

// Parameters as types, or as lists of tensors.
#include <shardkit/param/params.hpp>
#include <shardkit/param/shapes.hpp>
#include <shardkit/param/tensor_list.hpp>

// Communication: one header for each verb.
#include <shardkit/verbs/all_gather.hpp>
#include <shardkit/verbs/all_reduce.hpp>
#include <shardkit/verbs/barrier.hpp>
#include <shardkit/verbs/broadcast.hpp>
#include <shardkit/verbs/reduce_scatter.hpp>
#include <shardkit/verbs/send_receive.hpp>

// Ranks on a mesh.
#include <shardkit/mesh/expert_mesh.hpp>
#include <shardkit/rank/all_reduce_value.hpp>
#include <shardkit/rank/rank.hpp>

// How parameters, gradients and optimizer states are sharded.
#include <shardkit/policy/named_policy.hpp>
#include <shardkit/policy/policies.hpp>

// Groups of parameters, and a training step over them.
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/accumulation.hpp>
#include <shardkit/step/loss_scale.hpp>
#include <shardkit/step/model.hpp>
#include <shardkit/step/summon_full_params.hpp>

// Optimizers, the norm of gradients and clipping.
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/learning_rate.hpp>
#include <shardkit/optim/lion.hpp>
#include <shardkit/optim/sgd.hpp>

// Engines.
#include <shardkit/backend/self/run.hpp>
#include <shardkit/backend/threads/run.hpp>

#endif

#include <shardkit/detail/show_macros.inc>
