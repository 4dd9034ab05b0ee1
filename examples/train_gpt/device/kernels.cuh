// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/backend/cub/launch.cuh>

#include "../model/attention.hpp"
#include "../model/convert.hpp"
#include "../model/embedding.hpp"
#include "../model/gelu.hpp"
#include "../model/head.hpp"
#include "../model/layer_norm.hpp"
#include "../model/linear.hpp"
#include "place.hpp"

namespace train_gpt {

/// Makes, for nvcc, the launches of a Pass<T> on a device, when it is explicitly instantiated.
template <class T, class A = Arithmetic<T>>
struct PassKernels {
    using Elements = shardkit::gpu::Launches<Fill<A>, Gelu<A>, GeluBackward<A>, AddRounded<T, A>>;
    using Rows =
        shardkit::gpu::Launches<EachRow<TakeRow<T, A>>, EachRow<AddPosition<T, A>>, EachRow<LayerNorm<T, A>>,
                                EachRow<LayerNormBackward<T, A>>, EachRow<AddBias<T, A>>, EachRow<CopyKeysValues<A>>,
                                EachRow<MergeScores<A>>, EachRow<ScoresBackward<A>>, EachRow<LargestLogit<A>>,
                                EachRow<Exponentials<A>>, EachRow<LogitsGradient<A>>, EachRow<SumLosses<A>>>;
    using OfColumns =
        shardkit::gpu::Launches<EachColumn<LayerNormSums<A>>, EachColumn<ColumnSums<A>>,
                                EachColumn<ScatterRows<A, Positions>>, EachColumn<ScatterRows<A, TokenRows>>>;

    static auto calls() { return std::tuple_cat(Elements::calls(), Rows::calls(), OfColumns::calls()); }
};

}  // namespace train_gpt
