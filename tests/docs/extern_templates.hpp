// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <shardkit/backend/host/any_kernels.hpp>
#include <shardkit/backend/threads/launch.hpp>
#include <shardkit/optim/rule_functions.hpp>

// Compiles once what each program of a page would otherwise compile again: templates that do not depend on the
// parameters' types, for an optimizer's rule. programs.hpp has the lines.

// The arguments are types and a keyword, which must not be in parentheses.
// NOLINTBEGIN(bugprone-macro-parentheses)
/// Instantiates everything. `prefix` is `extern`, or empty in the one file that has the code.
#define SHARDKIT_TEMPLATES(prefix, Rule) \
    prefix template class shardkit::detail::FunctionsOf<Rule, shardkit::host::AnyKernels::Loops>;
/// The same of the launch of threads.
#define SHARDKIT_THREADS_TEMPLATES(prefix)                                                         \
    prefix template void shardkit::threads::detail::collect_and_throw(                             \
        std::size_t, shardkit::threads::detail::RankBody, const shardkit::threads::LaunchOptions&, \
        shardkit::SourceLocation);
// NOLINTEND(bugprone-macro-parentheses)
