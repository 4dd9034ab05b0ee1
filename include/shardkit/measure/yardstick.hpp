// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/not_compiled.inc>

#include <shardkit/measure/host_copy.hpp>
#include <shardkit/memory/host_buffer.hpp>

namespace shardkit::measure {

namespace detail {

template <class Engine>
struct CopyOf {
    static_assert(
        shardkit::detail::may_host_read<Engine>,
        "measure: Engine must name PlainCopy, the copy that stands beside what is timed, where its memory is "
        "not the host's; see measure/yardstick.hpp");
    using type = HostCopy;
};
template <class Engine>
requires requires { typename Engine::PlainCopy; }
struct CopyOf<Engine> {
    using type = typename Engine::PlainCopy;
};

}  // namespace detail

/// Names the plain copy that stands beside what is timed on an engine: HostCopy, or what the engine calls
/// `PlainCopy`, which is made and called as HostCopy.
template <class Engine>
using PlainCopyOf = typename detail::CopyOf<Engine>::type;

}  // namespace shardkit::measure
