// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include <shardkit/core/element.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/layout/index_range.hpp>
#include <shardkit/param/tensor_part.hpp>
#include <shardkit/rank/engine_table.hpp>
#include <shardkit/rank/launches.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/sharded/group_geometry.hpp>
#include <shardkit/sharded/held_memory.hpp>

// Digests of what a rank holds of a group, which ranks compare or add up.

namespace shardkit::detail {

/// Returns the digest of one element, by its number in the whole tensor: a one-to-one function of the element's bits.
/// A tensor's digest is the sum of those of its elements, modulo 2^64. Integers add up to the same in any order, so
/// it does not depend on where the tensor is cut and who adds what. As a summand is one-to-one, a change of a single
/// element always changes the sum. Changes of several elements cancel with probability 2^-64.
/// Source:  the finalizer of SplitMix64 (Steele, Lea, Flood 2014), with Stafford's constants (Mix13)
constexpr std::uint64_t element_digest(std::uint64_t seed, std::uint64_t number, std::uint64_t bits) noexcept {
    std::uint64_t x = bits ^ (seed + (number + 1) * 0x9e37'79b9'7f4a'7c15U);
    x = (x ^ x >> 30U) * 0xbf58'476d'1ce4'e5b9U;
    x = (x ^ x >> 27U) * 0x94d0'49bb'1331'11ebU;
    return x ^ x >> 31U;
}

/// Digests the elements lane, lane + lanes, ... of a run. `Word`: an unsigned integer of an element's size. Run by
/// index; all pointers lead into the engine's memory.
template <class Word>
struct DigestElements {
    const void* elements;
    std::uint64_t count;
    std::uint64_t lanes;
    TensorPart part;      ///< of the parameter
    std::uint64_t first;  ///< number of the first element in that part
    std::uint64_t unit;   ///< distance of an element's number from the last one's
    std::uint64_t seed;
    std::uint64_t* sums;  ///< one for each lane

    static constexpr std::uint64_t most_lanes = 4096;
    static constexpr std::uint64_t lanes_of(std::uint64_t count) noexcept {
        return std::clamp(count / 256, std::uint64_t{1}, most_lanes);
    }

    constexpr void operator()(std::uint64_t lane) const {
        const auto* const words = static_cast<const Word*>(elements);
        const bool contiguous = part.block() == part.numel();
        const std::uint64_t begin = part.whole_index(0) + first;
        std::uint64_t sum = 0;
        for (std::uint64_t i = lane; i < count; i += lanes) {
            Word bits{};
            std::memcpy(&bits, words + i, sizeof bits);
            const std::uint64_t number = contiguous ? begin + i * unit : part.whole_index(first + i * unit);
            sum += element_digest(seed, number, bits);
        }
        sums[lane] = sum;
    }
};
/// Adds the lanes up. Run once, behind them.
struct FoldDigests {
    std::span<const std::uint64_t> sums;
    std::uint64_t* into;

    constexpr void operator()() const {
        std::uint64_t sum = 0;
        for (const std::uint64_t each : sums) { sum += each; }
        *into = sum;
    }
};

/// What a rank holds of one parameter in one buffer, or a part of it.
struct HeldPiece {
    const GroupGeometry* group = nullptr;
    std::size_t parameter = 0;
    HeldMemory values;
    IndexRange flat;         ///< elements of the group's flat order; may be empty
    std::uint64_t seed = 0;  ///< tells the digests of different tensors from each other
};

/// Returns the digest of each piece; 0 for an empty one.
/// Order:   behind the compute stream's work, for which the host waits. Local work.
/// Cost:    reads the pieces once. Memory: 8 bytes for each, and 32 kB
inline std::vector<std::uint64_t> digests_of(Rank& rank, const List<HeldPiece>& pieces) {
    constexpr std::size_t lanes = DigestElements<std::uint32_t>::most_lanes;
    const auto memory = EngineTable<std::uint64_t>::zeroed(rank, pieces.size() + lanes);
    const auto stream = rank.compute_stream();
    std::uint64_t* into = memory.data() + lanes;
    const auto digest = [&]<class Word>(Word /*any*/, const HeldPiece& piece) {
        using Work = DigestElements<Word>;
        const PlacedParameter& parameter = piece.group->parameters[piece.parameter];
        const std::size_t unit = piece.values.unit;
        const std::size_t begin = (piece.flat.begin - piece.values.flat.begin) / unit;
        const std::size_t count = (piece.flat.size() + unit - 1) / unit;
        // A host goes through them once.
        const std::uint64_t used = host_reads(stream) ? 1 : Work::lanes_of(count);
        run_each(stream, used,
                 Work{static_cast<const Word*>(piece.values.values.data()) + begin, count, used, parameter.part,
                      piece.flat.begin - parameter.range.begin, unit, piece.seed, memory.data()});
        host::AnyKernels::run_once(stream, FoldDigests{{memory.data(), used}, into});
    };
    for (const HeldPiece& piece : pieces) {
        if (!piece.flat.empty()) {
            with_word(size_of(piece.values.values.type()), [&](auto word) { digest(word, piece); });
        }
        ++into;
    }
    std::vector<std::uint64_t> digests(pieces.size());
    host::AnyKernels::copy_out(stream, std::span<const std::uint64_t>(memory.span()).subspan(lanes),
                               std::span<std::uint64_t>(digests));
    return digests;
}

/// Returns a piece for each parameter that the memory may have current values of, whole in this rank's or not. Lists
/// have the same length on every rank.
inline void list_pieces(const GroupGeometry& group, const HeldMemory& held, List<HeldPiece>& pieces) {
    const HeldMemory values = held.current(group);
    for (std::size_t p = 0; p < group.parameters.size(); ++p) {
        if (!values.of.empty() && values.of[p] == 0) { continue; }
        pieces.push_back({&group, p, values, intersect(group.parameters[p].range, values.flat), 0});
    }
}

}  // namespace shardkit::detail
