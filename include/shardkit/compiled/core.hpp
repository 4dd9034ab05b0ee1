// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/backend/host/any_kernels.hpp>
#include <shardkit/optim/clip.hpp>
#include <shardkit/optim/norm.hpp>
#include <shardkit/optim/optimizer.hpp>
#include <shardkit/step/accumulation.hpp>
#include <shardkit/step/loss_scale.hpp>
#include <shardkit/step/model.hpp>
#include <shardkit/step/reduce.hpp>
#include <shardkit/verbs/communicator.hpp>

// What all source files of the core have: the precisions that it is compiled for.

#ifndef SHARDKIT_COMPILED_PRECISIONS
/// The precisions that the core is compiled for: a Precisions<...>, the same in all of its source files.
#define SHARDKIT_COMPILED_PRECISIONS                                                                  \
    ::shardkit::Precisions<::shardkit::DefaultPrecision<double>, ::shardkit::DefaultPrecision<float>, \
                           ::shardkit::DefaultPrecision<::shardkit::bf16>,                            \
                           ::shardkit::DefaultPrecision<::shardkit::fp16>>
#endif

namespace shardkit::compiled SHARDKIT_CHECKED_BUILD {

using AllPrecisions = SHARDKIT_COMPILED_PRECISIONS;

}  // namespace SHARDKIT_CHECKED_BUILD
