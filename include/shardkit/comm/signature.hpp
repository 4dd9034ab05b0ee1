// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include <shardkit/comm/reduce_op.hpp>
#include <shardkit/comm/verb.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/concat.hpp>

namespace shardkit {

/// What all ranks of one collective must say alike.
struct Signature {
    Verb verb{};
    ElementType in = ElementType::uint8;
    ElementType out = ElementType::uint8;
    ReduceOp op = ReduceOp::sum;
    std::size_t count = 0;  ///< elements of the span that is equal on all ranks
    std::size_t root = 0;

    friend bool operator==(const Signature&, const Signature&) = default;
};

/// "all_reduce sum of 10 bf16 into fp32 at train.cpp:12"; for error messages.
inline std::string describe(const Signature& s, SourceLocation where) {
    std::string text(name(s.verb));
    const bool reduces = s.verb == Verb::all_reduce || s.verb == Verb::reduce_scatter;
    if (reduces) { text += detail::concat(" ", name(s.op)); }
    if (s.verb != Verb::barrier && s.verb != Verb::split) {
        text += detail::concat(" of ", s.count, " ", name(s.in));
    }
    if (reduces && s.in != s.out) { text += detail::concat(" into ", name(s.out)); }
    if (s.verb == Verb::broadcast) { text += detail::concat(" from root ", s.root); }
    return text + detail::concat(" at ", where.file, ":", where.line);
}

}  // namespace shardkit
