// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <shardkit/comm/reduce_op.hpp>
#include <shardkit/comm/verb.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/fnv.hpp>

namespace shardkit::engine {

/// The purpose of a call: a group and which of its buffers, "'blocks.0' parameters". Ranks that call the same verb on
/// as many elements for different purposes disagree. A rank's journal keeps it at a stable address.
struct CallSubject {
    std::string text;
    std::uint32_t hash;  ///< of the text; never 0

    explicit CallSubject(std::string_view what) : text(what), hash(hash_of(what)) {}

    static constexpr std::uint32_t hash_of(std::string_view text) noexcept {
        detail::Fnv fnv;
        fnv.add(text);
        const auto folded = static_cast<std::uint32_t>(fnv.hash ^ fnv.hash >> 32U);
        return folded == 0 ? 1 : folded;
    }
};

/// Where and, if known, for what purpose a verb is called: the last argument of the verbs. `stated` is a hash of
/// facts that are in no buffer and must be the same on all ranks, for example a divisor or a learning rate; 0: none.
struct CallSite {
    SourceLocation where;
    const CallSubject* subject = nullptr;
    std::uint64_t stated = 0;

    constexpr CallSite(SourceLocation at, const CallSubject* what = nullptr, std::uint64_t states = 0) noexcept
        : where(at), subject(what), stated(states) {}
    constexpr std::uint32_t hash() const noexcept { return subject == nullptr ? 0 : subject->hash; }
};

}  // namespace shardkit::engine

namespace shardkit {

/// The facts about a collective that must be the same on all its ranks.
struct Signature {
    Verb verb{};
    ElementType in = ElementType::uint8;
    ElementType out = ElementType::uint8;
    ReduceOp op = ReduceOp::sum;
    std::uint32_t subject = 0;  ///< CallSubject::hash; 0: unknown
    std::size_t count = 0;      ///< elements of the span that is equal on all ranks
    /// The root of a broadcast, the other rank of a message, or CallSite::stated of a call that moves a group's
    /// values.
    std::uint64_t argument = 0;

    friend bool operator==(const Signature&, const Signature&) = default;
};

/// One call of a verb on one rank. The functions in verbs/ make it, and the engine's member takes it as its last
/// argument. An engine that compares calls reads the signature; all read the caller's file and line.
struct Call {
    Signature signature{};
    std::size_t payload = 0;  ///< bytes of the whole buffer
    SourceLocation where{};
    const engine::CallSubject* subject = nullptr;

    static constexpr std::uint64_t no_number = ~std::uint64_t{0};
    /// The number of the call in the rank's flight recorder, once the call has begun.
    mutable std::uint64_t number = no_number;
    /// How many calls stand there for it, the last of which has this number: 2 for a send that is made with a
    /// receive.
    std::uint32_t entries = 1;

    constexpr operator SourceLocation() const noexcept { return where; }
};

namespace detail {
/// The element types of what a call sends and of what it receives.
struct CallElements {
    ElementType in;
    ElementType out;
};
/// Makes a call that sends `count` elements, of a buffer of `payload` bytes.
constexpr Call call_of(CallElements elements, Verb verb, std::size_t count, std::size_t payload,
                       const engine::CallSite& site, ReduceOp op = ReduceOp::sum) noexcept {
    return {
        {verb, elements.in, elements.out, op, site.hash(), count, site.stated}, payload, site.where, site.subject};
}
}  // namespace detail

/// Returns a call as text for an error message: "all_reduce sum of 10 bf16 into fp32 for 'blocks.0' gradients with
/// divisor 2 at train.cpp:12". `stated` is for example " with divisor 2".
[[gnu::cold]] inline std::string describe(const Signature& s, SourceLocation where, std::string_view subject = {},
                                          std::string_view stated = {}) {
    std::string text(name(s.verb));
    const bool reduces = s.verb == Verb::all_reduce || s.verb == Verb::reduce_scatter;
    if (reduces) { detail::append(text, " ", name(s.op)); }
    if (s.verb == Verb::all_to_all_uneven) {
        detail::append(text, " of ", name(s.in));  // its counts belong to pairs of ranks
    } else if (s.verb != Verb::barrier && s.verb != Verb::split) {
        detail::append(text, " of ", s.count, " ", name(s.in));
    }
    if (reduces && s.in != s.out) { detail::append(text, " into ", name(s.out)); }
    if (s.verb == Verb::broadcast) { detail::append(text, " from root ", s.argument); }
    if (!subject.empty()) { detail::append(text, " for ", subject); }
    return text + detail::concat(stated, " at ", where.file, ":", where.line);
}

namespace detail {

inline std::string_view text_of(const engine::CallSubject* subject) noexcept {
    return subject == nullptr ? std::string_view() : std::string_view(subject->text);
}

/// Returns whether two calls differ only in the statements of their ranks.
constexpr bool differ_in_statements(const Signature& a, const Signature& b) noexcept {
    Signature as_b = a;
    as_b.argument = b.argument;
    return as_b == b && a.argument != b.argument && a.verb != Verb::broadcast;
}

/// Returns a hash of `s` and of the calls before it, whose hash is `before`. Equal sequences of calls have equal
/// hashes.
/// Source: Fowler, Noll, Vo: FNV-1a, by words
constexpr std::uint64_t call_hash(const Signature& s, std::uint64_t before) noexcept {
    const std::uint64_t words[] = {static_cast<std::uint64_t>(s.verb),
                                   static_cast<std::uint64_t>(s.in),
                                   static_cast<std::uint64_t>(s.out),
                                   static_cast<std::uint64_t>(s.op),
                                   s.count,
                                   s.argument,
                                   s.subject,
                                   before};
    std::uint64_t hash = 0xcbf29ce484222325ULL;
    for (const std::uint64_t word : words) {
        hash = (hash ^ word) * 0x100000001b3ULL;
        hash ^= hash >> 32U;
    }
    return hash;
}

}  // namespace detail

}  // namespace shardkit
