// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/param/attributes.hpp>
#include <shardkit/param/params.hpp>

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

// Stacks of 16 experts, each of which is drawn as a row.
struct Up : shardkit::Param<"up", float, 16, 24>, shardkit::ep::Split {
    using TensorParallel = shardkit::tp::Split<1>;
};
struct Down : shardkit::Param<"down", float, 16, 24>, shardkit::ep::Split {
    using TensorParallel = shardkit::tp::Split<1>;
};
struct Scale : shardkit::Param<"scale", float, 16>, shardkit::ep::Split {};
using Experts = shardkit::Params<Up, Down, Scale>;

}  // namespace mesh_picture
