// SPDX-License-Identifier: Apache-2.0
// What most tests include and instantiate: clang's builds with sanitizers read and compile it once (meson.build).
#pragma once

#include <doctest/doctest.h>

#include <vector>

#include <shardkit/checkpoint.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/shardkit.hpp>

#include "unit/checked/train_case.hpp"
#include "unit/sharded/linear_layer.hpp"
#include "unit/sharded/trainer.hpp"

namespace precompiled SHARDKIT_BUILD {

/// Beside train_case, for its instantiations alone.
inline std::vector<toy::RankResult> train() {
    namespace sk = shardkit;
    return toy::train<sk::Precision<double>>(toy::Mesh(2, 1, 1), sk::FullShard{}, toy::Training{.samples = 2});
}

}  // namespace precompiled SHARDKIT_BUILD
