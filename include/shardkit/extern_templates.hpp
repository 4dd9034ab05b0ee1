// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <shardkit/comm/all_reduce.hpp>
#include <shardkit/optim/clip.hpp>
#include <shardkit/optim/group_optimizer.hpp>
#include <shardkit/optim/norm.hpp>
#include <shardkit/optim/optimizer.hpp>
#include <shardkit/optim/optimizer_numbers.hpp>
#include <shardkit/optim/update_batches.hpp>
#include <shardkit/optim/update_table.hpp>
#include <shardkit/rank/context.hpp>
#include <shardkit/sharded/group_state.hpp>
#include <shardkit/sharded/norm_tables.hpp>
#include <shardkit/sharded/place_group.hpp>
#include <shardkit/step/accumulation.hpp>
#include <shardkit/step/model.hpp>
#include <shardkit/step/reduce.hpp>

// What a trainer's files would each compile again, compiled once: everything that does not depend on the parameters'
// types, for an engine, a Precision and an optimizer's rule. In a header that all the trainer's files include:
//     SHARDKIT_TEMPLATES(extern, shardkit::threads::Engine, shardkit::DefaultPrecision<float>, shardkit::AdamWRule)
//     SHARDKIT_THREADS_TEMPLATES(extern)
// and in one source file after it the same without `extern`:
//     SHARDKIT_TEMPLATES(, shardkit::threads::Engine, shardkit::DefaultPrecision<float>, shardkit::AdamWRule)
//     SHARDKIT_THREADS_TEMPLATES()
// Another optimizer of the same engine and precision takes SHARDKIT_RULE_TEMPLATES with the same arguments in both
// places, and not a second line of SHARDKIT_TEMPLATES: compilers refuse to instantiate the rest twice. Another
// precision of the same engine takes a second source file.
// Outside of every namespace; a type with a comma needs an alias. Without that source file linking fails with
// "undefined reference to shardkit::...::GroupState<...>". Nothing else changes: files with and without these lines
// may be linked together.

// The arguments are types and a keyword, which take no parentheses.
// NOLINTBEGIN(bugprone-macro-parentheses)
/// The optimizer's part alone, of another rule: see above.
#define SHARDKIT_RULE_TEMPLATES(prefix, Engine, Precision, Rule)                                                   \
    prefix template class shardkit::detail::GroupOptimizer<Rule, Engine, shardkit::Arithmetic<Precision::Master>>; \
    prefix template class shardkit::detail::UpdateTable<Rule, Engine, shardkit::Arithmetic<Precision::Master>>;    \
    prefix template class shardkit::detail::UpdateBatches<Rule, Engine, Precision>;                                \
    prefix template class shardkit::detail::OptimizerNumbers<Rule, Engine>;
/// `prefix`: `extern`, or nothing in the one file that has the code.
#define SHARDKIT_TEMPLATES(prefix, Engine, Precision, Rule)                                                   \
    SHARDKIT_RULE_TEMPLATES(prefix, Engine, Precision, Rule)                                                  \
    prefix template class shardkit::Context<Engine>;                                                          \
    prefix template class shardkit::detail::Group<Engine>;                                                    \
    prefix template class shardkit::detail::GroupState<Engine, Precision>;                                    \
    prefix template class shardkit::Groups<Engine>;                                                           \
    prefix template class shardkit::detail::StepScope<Engine>;                                                \
    prefix template class shardkit::Accumulation<Engine>;                                                     \
    prefix template class shardkit::Optimizer<Engine>;                                                        \
    prefix template std::size_t shardkit::detail::dp_extent(const shardkit::Context<Engine>&);                \
    prefix template class shardkit::detail::NormTable<Engine, Precision::Reduction>;                          \
    prefix template class shardkit::detail::NormTables<Engine, Precision::Reduction>;                         \
    prefix template class shardkit::detail::NormMemory<Engine>;                                               \
    prefix template shardkit::Reduced<Engine> shardkit::detail::reduce(                                       \
        shardkit::Accumulation<Engine>&&, const shardkit::Divisor&, const shardkit::detail::LossScaleUse&,    \
        shardkit::SourceLocation);                                                                            \
    prefix template shardkit::GlobalNorm<Engine> shardkit::detail::global_norm(                               \
        const shardkit::Reduced<Engine>&, shardkit::NormKind, shardkit::SourceLocation);                      \
    prefix template class shardkit::GlobalNorm<Engine>;                                                       \
    prefix template shardkit::ClipCoefficient shardkit::clip(const shardkit::GlobalNorm<Engine>&, double,     \
                                                             shardkit::SourceLocation);                       \
    prefix template void shardkit::all_reduce_in_place(const Engine::Communicator&, shardkit::ReduceOp,       \
                                                       std::span<float>, Engine::Stream, shardkit::CallSite); \
    prefix template void shardkit::all_reduce_in_place(const Engine::Communicator&, shardkit::ReduceOp,       \
                                                       std::span<double>, Engine::Stream, shardkit::CallSite);
// NOLINTEND(bugprone-macro-parentheses)
