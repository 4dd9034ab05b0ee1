// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <utility>

#include <shardkit/backend/self/run.hpp>
#include <shardkit/backend/threads/communicator.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/policy/policies.hpp>

namespace sk = shardkit;

/// What the reject tests are about: a layer, another layer, and a parameter of neither.
struct Weight : sk::Param<"weight", float, 4, 3> {};
struct Bias : sk::Param<"bias", float, 4> {};
struct Table : sk::Param<"table", float, 5, 3> {};
struct Foreign : sk::Param<"foreign", float, 4> {};
using Linear = sk::Params<Weight, Bias>;

using Layer = sk::Sharded<Linear, sk::FullShard>;
using OtherLayer = sk::Sharded<Table, sk::FullShard>;
