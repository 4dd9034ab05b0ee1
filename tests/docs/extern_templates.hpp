// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <shardkit/backend/threads/launch.hpp>
#include <shardkit/comm/all_reduce.hpp>
#include <shardkit/optim/any_launches.hpp>
#include <shardkit/optim/any_rule.hpp>
#include <shardkit/optim/clip.hpp>
#include <shardkit/optim/group_optimizer.hpp>
#include <shardkit/optim/norm.hpp>
#include <shardkit/optim/norm_memory.hpp>
#include <shardkit/optim/optimizer.hpp>
#include <shardkit/optim/optimizer_groups.hpp>
#include <shardkit/optim/optimizer_numbers.hpp>
#include <shardkit/optim/rule_optimizer.hpp>
#include <shardkit/optim/update_table.hpp>
#include <shardkit/rank/context.hpp>
#include <shardkit/sharded/group_state.hpp>
#include <shardkit/sharded/place_group.hpp>
#include <shardkit/step/accumulation.hpp>
#include <shardkit/step/model.hpp>
#include <shardkit/step/reduce.hpp>

// Compiles once what each program of a page would otherwise compile again: everything that does not depend on the
// parameters' types, for an engine, a Precision and an optimizer's rule. programs.hpp has the lines.

// The arguments are types and a keyword, which must not be in parentheses.
// NOLINTBEGIN(bugprone-macro-parentheses)
/// Instantiates only what an optimizer has of its own, for a further rule: see above.
#define SHARDKIT_RULE_TEMPLATES(prefix, Engine, Precision, Rule) \
    prefix template class shardkit::rules::RuleOptimizer<Rule, Engine, Precision>;
/// Instantiates everything. `prefix` is `extern`, or empty in the one file that has the code.
#define SHARDKIT_TEMPLATES(prefix, Engine, Precision, Rule)                                                         \
    prefix template class shardkit::detail::GroupOptimizer<shardkit::detail::AnyRule, Engine>;                      \
    prefix template class shardkit::detail::UpdateTable<shardkit::detail::AnyRule, Engine, float>;                  \
    prefix template class shardkit::detail::LaunchedGroups<                                                         \
        shardkit::detail::AnyRule, Engine, shardkit::detail::AnyLaunches<Engine>, shardkit::detail::NoLaunches>;    \
    prefix template class shardkit::detail::OptimizerNumbers<shardkit::detail::AnyRule, Engine>;                    \
    prefix template class shardkit::detail::OptimizerFrame<shardkit::detail::AnyRule, Engine>;                      \
    SHARDKIT_RULE_TEMPLATES(prefix, Engine, Precision, Rule)                                                        \
    prefix template class shardkit::Context<Engine>;                                                                \
    prefix template class shardkit::detail::Group<Engine>;                                                          \
    prefix template class shardkit::detail::GroupState<Engine, Precision>;                                          \
    prefix template class shardkit::Groups<Engine>;                                                                 \
    prefix template class shardkit::detail::StepScope<Engine>;                                                      \
    prefix template class shardkit::Accumulation<Engine>;                                                           \
    prefix template class shardkit::Optimizer<Engine>;                                                              \
    prefix template std::size_t shardkit::detail::dp_extent(const shardkit::Context<Engine>&);                      \
    prefix template class shardkit::detail::NormTable<Engine>;                                                      \
    prefix template class shardkit::detail::NormMemory<Engine>;                                                     \
    prefix template shardkit::Reduced<Engine> shardkit::detail::reduce(                                             \
        shardkit::Accumulation<Engine>&&, const shardkit::Divisor&, const shardkit::detail::LossScaleUse&,          \
        shardkit::SourceLocation);                                                                                  \
    prefix template shardkit::GlobalNorm<Engine> shardkit::detail::global_norm(                                     \
        const shardkit::Reduced<Engine>&, shardkit::NormKind, shardkit::detail::NormFor, shardkit::SourceLocation); \
    prefix template class shardkit::GlobalNorm<Engine>;                                                             \
    prefix template shardkit::ClipCoefficient shardkit::clip(const shardkit::GlobalNorm<Engine>&, double,           \
                                                             shardkit::SourceLocation);                             \
    prefix template void shardkit::detail::all_reduce_span(const Engine::Communicator&, shardkit::ReduceOp,         \
                                                           std::span<float>, Engine::Stream,                        \
                                                           shardkit::engine::CallSite);                             \
    prefix template void shardkit::detail::all_reduce_span(const Engine::Communicator&,                             \
                                                           shardkit::detail::TreelessOp, std::span<double>,         \
                                                           Engine::Stream, shardkit::engine::CallSite);
/// The same of the launch of threads.
#define SHARDKIT_THREADS_TEMPLATES(prefix)                                                         \
    prefix template void shardkit::threads::detail::collect_and_throw(                             \
        std::size_t, shardkit::threads::detail::RankBody, const shardkit::threads::LaunchOptions&, \
        shardkit::SourceLocation);
// NOLINTEND(bugprone-macro-parentheses)
