// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/backend/host/device_kernels.hpp>
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

/// What a Pass<T> gives to a device: kernels of the library, in a Library<...>, and works for each index, in
/// Each<...>.
template <class T, template <class...> class Library, template <class...> class Each>
struct PassLists {
    using A = Arithmetic<T>;
    using OfLibrary = Library<shardkit::engine::Fill<T>, shardkit::engine::Fill<A>, shardkit::engine::Convert<A, T>,
                              shardkit::engine::Convert<T, T>, shardkit::engine::Convert<T, A>>;
    using Elements = Each<EachGelu<T>, EachGeluBackward<T>, AddRounded<T>>;
    using Rows = Each<EachRow<TakeRow<TokenRows, T, T>>, EachRow<TakeRow<TokenRows, T, A>>,
                      EachRow<TakeRow<Positions, T, T>>, EachRow<LayerNorm<T, T>>, EachRow<LayerNormBackward<T, T>>,
                      EachRow<AddBias<T, T>>, EachRow<CopyKeysValues<T, T>>, EachRow<CopyKeysValues<T, A>>,
                      EachRow<MergeScores<T>>, EachRow<ScoresBackward<T>>, EachRow<LargestLogit<T>>,
                      EachRow<Exponentials<T>>, EachRow<LogitsGradient<T>>, EachRow<SumLosses<A>>>;
    using OfColumns = Each<EachColumn<LayerNormSums<T>>, EachColumn<ColumnSums<T>>,
                           EachColumn<ScatterRows<T, Positions>>, EachColumn<ScatterRows<T, TokenRows>>>;
    /// Of a layer of experts. The three in the middle are of expert_parallel/token_rows.hpp.
    using OfExperts =
        Each<AddRounded<T, T>, AddRounded<A>, shardkit::detail::WriteRow<T, A>, shardkit::detail::SumRows<T, A>,
             shardkit::detail::WeightGradient<T, A>, EachRow<ChooseExperts<A>>, EachColumn<CountChoices>, SumCounts,
             EachColumn<PlaceChoices>, EachRow<RouterBackward<T>>>;
};
/// What a training gives beside, whatever its T.
template <template <class...> class Library, template <class...> class Each>
struct OtherLists {
    using OfLibrary = Library<shardkit::engine::Convert<double, double>>;
    using Elements = Each<Convert<Token, Token>>;
};

}  // namespace train_gpt
