// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/param/params.hpp>
#include <shardkit/param/tp_placement.hpp>

namespace mesh_picture {

// One of each kind that a transformer has, with sequence parallelism and small enough to be drawn element by element.
struct Embedding : shardkit::Param<"embedding", float, 64, 24> {
    using TensorParallel = shardkit::tp::Split<0>;
};
struct Qkv : shardkit::Param<"qkv", float, 72, 24> {
    using TensorParallel = shardkit::tp::Split<0>;
};
struct Projection : shardkit::Param<"projection", float, 24, 24> {
    using TensorParallel = shardkit::tp::Split<1>;
};
struct Bias : shardkit::Param<"bias", float, 24> {
    using TensorParallel = shardkit::tp::PartialSum;
};
struct Norm : shardkit::Param<"norm", float, 24> {
    using TensorParallel = shardkit::tp::PartialSum;
};
using Group = shardkit::Params<Embedding, Qkv, Projection, Bias, Norm>;

}  // namespace mesh_picture
