// SPDX-License-Identifier: Apache-2.0
#pragma once

// What shardkit.hpp is in the compiled form.

#include <shardkit/backend/self/run.hpp>
#include <shardkit/backend/threads/run.hpp>
#include <shardkit/core/bf16.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/core/fp16.hpp>
#include <shardkit/core/version.hpp>
#include <shardkit/mesh/expert_mesh.hpp>
#include <shardkit/optim/clip.hpp>
#include <shardkit/optim/element_optimizer.hpp>
#include <shardkit/optim/learning_rate.hpp>
#include <shardkit/param/params.hpp>
#include <shardkit/param/shapes.hpp>
#include <shardkit/param/tensor_list.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/rank/all_reduce_value.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/accumulation.hpp>
#include <shardkit/step/loss_scale.hpp>
#include <shardkit/step/model.hpp>
#include <shardkit/step/reduce.hpp>
#include <shardkit/step/slices.hpp>
#include <shardkit/step/summon_full_params.hpp>
