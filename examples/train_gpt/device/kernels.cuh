// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/backend/cub/kernel_launches.hpp>
#include <shardkit/backend/cub/launches.cuh>
#include <shardkit/expert_parallel/token_rows.hpp>

#include "../model/attention.hpp"
#include "../model/convert.hpp"
#include "../model/embedding.hpp"
#include "../model/gelu.hpp"
#include "../model/head.hpp"
#include "../model/layer_norm.hpp"
#include "../model/linear.hpp"
#include "../model/router.hpp"
#include "place.hpp"

namespace train_gpt {

/// Makes, for nvcc, the launches of a Pass<T> on a device, when it is explicitly instantiated.
template <class T>
struct PassKernels {
    using A = Arithmetic<T>;
    using OfLibrary = shardkit::gpu::KernelLaunches<shardkit::engine::Fill<T>, shardkit::engine::Fill<A>,
                                                    shardkit::engine::Convert<A, T>, shardkit::engine::Convert<T, T>,
                                                    shardkit::engine::Convert<T, A>>;
    using Elements = shardkit::gpu::Launches<EachGelu<T>, EachGeluBackward<T>, AddRounded<T>>;
    using Rows =
        shardkit::gpu::Launches<EachRow<TakeRow<T, T>>, EachRow<TakeRow<T, A>>, EachRow<AddPosition<T, T>>,
                                EachRow<LayerNorm<T, T>>, EachRow<LayerNormBackward<T, T>>, EachRow<AddBias<T, T>>,
                                EachRow<CopyKeysValues<T, T>>, EachRow<CopyKeysValues<T, A>>, EachRow<MergeScores<T>>,
                                EachRow<ScoresBackward<T>>, EachRow<LargestLogit<T>>, EachRow<Exponentials<T>>,
                                EachRow<LogitsGradient<T>>, EachRow<SumLosses<A>>>;
    using OfColumns =
        shardkit::gpu::Launches<EachColumn<LayerNormSums<T>>, EachColumn<ColumnSums<T>>,
                                EachColumn<ScatterRows<T, Positions>>, EachColumn<ScatterRows<T, TokenRows>>>;
    /// Of a layer of experts. The three in the middle are of expert_parallel/token_rows.hpp.
    using OfExperts = shardkit::gpu::Launches<AddRounded<T, T>, AddRounded<A>, shardkit::detail::WriteRow<T, A>,
                                              shardkit::detail::SumRows<T, A>, shardkit::detail::WeightGradient<T, A>,
                                              EachRow<ChooseExperts<A>>, EachColumn<CountChoices>, SumCounts,
                                              EachColumn<PlaceChoices>, EachRow<RouterBackward<T>>>;

    static void calls() { shardkit::gpu::LaunchLists<OfLibrary, Elements, Rows, OfColumns, OfExperts>::calls(); }
};

}  // namespace train_gpt
