// SPDX-License-Identifier: Apache-2.0
#pragma once

#ifdef __CUDACC__
#include <shardkit/backend/cub/launches.cuh>
#endif

#include <shardkit/backend/cub/kernel_launches.hpp>
#include <shardkit/backend/host/device_kernels.hpp>
#include <shardkit/backend/nccl/kernels_of.hpp>
#include <shardkit/compiled/core.hpp>
#include <shardkit/factored/adafactor.hpp>
#include <shardkit/muon/muon.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/lion.hpp>
#include <shardkit/optim/sgd.hpp>

// The kernels that the core gives to a device, as lists of what launches them.

namespace shardkit::compiled SHARDKIT_CHECKED_BUILD {

template <class List>
using LaunchesOf = typename List::template In<gpu::KernelLaunches>;

/// Steps of groups with a precision, with the rules of elements that the core has, and their states in a format.
template <class P, StateFormat format>
using RuleLaunches =
    gpu::LaunchLists<LaunchesOf<decltype(nccl::detail::rule_kernels<P, rules::RuleIn<rules::AdamWRule, format>>())>,
                     LaunchesOf<decltype(nccl::detail::rule_kernels<P, rules::RuleIn<rules::AmsgradRule, format>>())>,
                     LaunchesOf<decltype(nccl::detail::rule_kernels<P, rules::RuleIn<rules::SgdRule, format>>())>,
                     LaunchesOf<decltype(nccl::detail::rule_kernels<P, rules::RuleIn<rules::LionRule, format>>())>>;

/// Steps of the rules with their states in some formats, of groups with these precisions.
template <class List, StateFormat... format>
struct UpdateLaunches;
template <class... P, StateFormat... format>
struct UpdateLaunches<Precisions<P...>, format...> {
    template <StateFormat each>
    using In = gpu::LaunchLists<RuleLaunches<P, each>...>;
    static void calls() { gpu::LaunchLists<In<format>...>::calls(); }
};
/// All else that the core launches of groups with these precisions: those of matrices, of Adafactor, of moving
/// averages, and sums over ranks of the element types that verbs have.
template <class List>
struct CoreLaunches;
template <class... P>
struct CoreLaunches<Precisions<P...>> {
    template <class Average>
    using AveragesIn = gpu::LaunchLists<LaunchesOf<decltype(nccl::detail::average_kernels<Average, P>())>...>;
    using Sums =
        gpu::KernelLaunches<engine::Reduce<double, double>, engine::Reduce<float, float>, engine::Reduce<bf16, bf16>,
                            engine::Reduce<fp16, fp16>, engine::Reduce<bf16, float>, engine::Reduce<fp16, float>>;
    using All = gpu::LaunchLists<LaunchesOf<decltype(nccl::detail::training_kernels<P, rules::MuonRule>())>...,
                                 LaunchesOf<decltype(nccl::detail::rule_kernels<P, rules::AdafactorRule>())>...,
                                 AveragesIn<P>..., Sums>;
    static void calls() { All::calls(); }
};

}  // namespace SHARDKIT_CHECKED_BUILD
