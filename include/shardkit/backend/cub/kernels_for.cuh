// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/backend/cub/kernels.cuh>

#include <cstdint>
#include <span>
#include <string_view>
#include <tuple>

#include <shardkit/backend/nccl/extreme.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/begin_norm.hpp>
#include <shardkit/optim/begin_step.hpp>
#include <shardkit/optim/begin_update.hpp>
#include <shardkit/optim/finish_norm.hpp>
#include <shardkit/optim/set_options.hpp>
#include <shardkit/optim/sgd.hpp>

namespace shardkit::gpu {

/// Explicitly instantiated in a file of nvcc's, the device code of each Work and the launch that other files link
/// with:
///     template struct shardkit::gpu::Launches<shardkit::tp::LossOfToken<float>>;
template <class... Work>
struct Launches {
    using Calls = std::tuple<void (DeviceLaunch::*)(std::uint64_t, const Work&, std::string_view) const...>;
    static const Calls calls;
};
template <class... Work>
const typename Launches<Work...>::Calls Launches<Work...>::calls{&DeviceLaunch::operator()<Work>...};

namespace detail {

/// The update that an optimizer's rule launches for groups of P.
template <class Rule, class P>
struct UpdatePassOf;
template <class P>
struct UpdatePassOf<AdamWRule, P> {
    using type = AdamWPass<typename P::Master, typename P::Gather, typename P::Reduction>;
};
template <class P>
struct UpdatePassOf<SgdRule, P> {
    using type = SgdPass<typename P::Master, typename P::Gather, typename P::Reduction>;
};

}  // namespace detail

/// Explicitly instantiated in a file of nvcc's, all kernels that groups of a Precision launch with an optimizer of
/// Rule on an NCCL engine: those of the stores, of norms and clipping, of steps and of the engine's reductions.
///     template struct shardkit::gpu::KernelsFor<shardkit::DefaultPrecision<float>, shardkit::AdamWRule>;
template <class Precision, class Rule>
struct KernelsFor {
    using Gather = typename Precision::Gather;
    using Gradient = typename Precision::Gradient;
    using Reduction = typename Precision::Reduction;
    using Master = typename Precision::Master;
    using OfGroups = Launches<FillPass<Gather>, FillPass<Gradient>, ConvertPass<Gather, Master>,
                              AccumulatePass<Reduction, Reduction>>;
    using OfSteps =
        Launches<RunOnce<BeginNorm>, RunOnce<FinishNorm>, RunOnce<BeginStep>,
                 RunOnce<SetOptions<typename Rule::Options>>, RunOnce<BeginUpdate<Rule, Arithmetic<Master>>>,
                 typename detail::UpdatePassOf<Rule, Precision>::type>;
    using OfReductions = Launches<ConvertPass<Gradient, Arithmetic<Reduction>>,
                                  ConvertPass<Arithmetic<Reduction>, Reduction>, nccl::Extreme<Gradient, Reduction>,
                                  nccl::Extreme<Reduction, Reduction>, nccl::Extreme<double, double>>;

    using Norm = void (*)(const TimelineRef&, std::span<const Reduction>, std::span<const IndexRange>, const double*,
                          double*);
    using Calls = std::tuple<typename OfGroups::Calls, typename OfSteps::Calls, typename OfReductions::Calls, Norm>;
    static const Calls calls;
};
template <class Precision, class Rule>
const typename KernelsFor<Precision, Rule>::Calls KernelsFor<Precision, Rule>::calls{
    OfGroups::calls, OfSteps::calls, OfReductions::calls, &norm_partial<typename Precision::Reduction>};

}  // namespace shardkit::gpu
