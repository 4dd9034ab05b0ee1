// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>

#include <shardkit/core/aligned_pack.hpp>
#include <shardkit/core/codes.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/layout/segments.hpp>
#include <shardkit/memory/stored_elements.hpp>
#include <shardkit/rank/launches.hpp>
#include <shardkit/sharded/group_geometry.hpp>

// How the codes that a gather sends are made of master weights. Works are run by index or once, on every engine, so
// that codes have the same bits on all of them.

namespace shardkit::detail {

/// Returns what a checked build writes over full parameters once they may not be read any more: NaN, a code whose
/// scale is one too, or a byte.
template <class Gather>
constexpr Gather closed_value() noexcept {
    if constexpr (is_opaque<Gather> || is_coded<Gather>) {
        return Gather{static_cast<std::underlying_type_t<Gather>>(255)};
    } else {
        return static_cast<Gather>(std::numeric_limits<Arithmetic<Gather>>::quiet_NaN());
    }
}

/// Folds as many of these magnitudes, which are `distance` bytes apart, into the first of them.
struct FoldLargest {
    std::byte* codes;
    std::size_t count;
    std::size_t distance;

    constexpr void operator()(std::uint64_t i) const {
        const std::size_t begin = i * coded_together;
        const std::size_t end = begin + coded_together < count ? begin + coded_together : count;
        float largest = 0;
        for (std::size_t k = begin; k < end; ++k) {
            float each = 0;
            std::memcpy(&each, codes + k * distance, sizeof each);
            largest = larger_magnitude(largest, each);
        }
        std::memcpy(codes + begin * distance, &largest, sizeof largest);
    }
};
/// Moves the magnitude that is left to its place; 0 where the rank has no element of the parameter. Run once.
struct TakeLargest {
    const std::byte* codes;
    float* largest;

    constexpr void operator()() const {
        *largest = 0;
        if (codes != nullptr) { std::memcpy(largest, codes, sizeof *largest); }
    }
};
/// Makes parameter i's scale of the magnitudes that all ranks found, which lie rank by rank.
template <class Code>
struct MakeScale {
    const float* largest;
    std::size_t ranks;
    std::size_t parameters;
    float* scales;

    constexpr void operator()(std::uint64_t i) const {
        float all = 0;
        for (std::size_t q = 0; q < ranks; ++q) { all = larger_magnitude(all, largest[q * parameters + i]); }
        scales[i] = CodeFormat<Code>::scale(all);
    }
};
/// Makes the codes of some neighbouring elements, with one scale for all. A kernel moves 16 bytes at a time: engines'
/// memory is aligned to them, and a parameter begins at a multiple of `coded_together`.
template <class Code, class Master>
struct EncodePiece {
    static constexpr std::size_t together = 16;
    static_assert(coded_together % together == 0);
    static constexpr unsigned least_blocks = 6;

    const Master* masters;
    std::size_t count;
    const float* scale;
    Code* codes;

    constexpr void operator()(std::uint64_t i) const {
        const float its = *scale;
        const Master* const from = masters + i * together;
        Code* const to = codes + i * together;
        if ((i + 1) * together <= count) {
            constexpr std::size_t each = lanes_for<Master>;
            AlignedPack<Code, together> made{};
            for (std::size_t k = 0; k < together; k += each) {
                const auto own = load<each>(from + k);
                for (std::size_t l = 0; l < each; ++l) { made.lane[k + l] = encoded(own.lane[l], its); }
            }
            store(made, to);
        } else {
            for (std::size_t k = 0; k < count % together; ++k) { to[k] = encoded(from[k], its); }
        }
    }

  private:
    static constexpr Code encoded(Master number, float scale) {
        return CodeFormat<Code>::encode(static_cast<float>(number), scale);
    }
};
/// Decodes element i of a parameter.
template <class Code>
struct DecodeElement {
    const Code* codes;
    const float* scales;
    float* to;

    constexpr void operator()(std::uint64_t i) const {
        to[i] = CodeFormat<Code>::decode(codes[i], scales[scale_number<Code>(i)]);
    }
};

/// Finds the largest magnitude of each parameter, as far as this rank has it, among those that BeginCodes has left in
/// `codes`, which are overwritten.
/// Cost:    reads a number for each `coded_together` codes
template <class Code>
void find_largest(const Stream& stream, const GroupGeometry& group, std::span<Code> codes, std::span<float> largest) {
    for (std::size_t p = 0; p < group.parameters.size(); ++p) {
        const IndexRange own = intersect(group.parameters[p].range, group.updated);
        std::byte* left = nullptr;
        if (!own.empty()) {
            const std::size_t at = own.begin - group.updated.begin;
            left = reinterpret_cast<std::byte*>(codes.data() + at);
            std::size_t count = (own.size() + coded_together - 1) / coded_together;
            for (std::size_t distance = coded_together; count > 1; distance *= coded_together) {
                const std::size_t folded = (count + coded_together - 1) / coded_together;
                run_each(stream, folded, FoldLargest{left, count, distance});
                count = folded;
            }
        }
        host::AnyKernels::run_once(stream, TakeLargest{left, &largest[p]});
    }
}
/// Makes the codes of `masters`, the elements `group.updated`, with a scale for each parameter.
/// Cost:    reads the masters once, and writes a byte for each
template <class Code, class Master>
void encode_parameters(const Stream& stream, const GroupGeometry& group, std::span<const Master> masters,
                       std::span<const float> scales, std::span<Code> codes) {
    for_each_segment(group.parameters, group.updated, [&](Segment segment) {
        using Work = EncodePiece<Code, Master>;
        const std::size_t at = segment.flat.begin - group.updated.begin;
        const std::size_t count = segment.flat.size();
        run_each(stream, (count + Work::together - 1) / Work::together,
                 Work{masters.data() + at, count, &scales[segment.parameter], codes.data() + at});
    });
}

/// Begins the codes of `masters`, the elements `group.updated`, unless `begun` says that an update has. Where codes
/// share scales in blocks, that makes them. Where a parameter has one scale, it finds what this rank has of
/// `largest`, the magnitudes of each parameter on each rank, which ranks then give each other.
template <class Code, class Master>
void begin_codes(const Stream& stream, const GroupGeometry& group, const StoredElements& from,
                 const StoredElements& to, std::span<float> scales, bool begun, std::span<float> largest) {
    const std::span<const Master> masters = from;
    const std::span<Code> codes = to;
    if (!begun) {
        run_each(stream, codes.size() / coded_together,
                 BeginCodes<Code, Master>{masters.data(), masters.size(), codes.data(), scales.data()});
    }
    if constexpr (!codes_in_blocks<Code>) {
        const std::size_t count = group.parameters.size();
        find_largest(stream, group, codes, largest.subspan(group.shard_index * count, count));
    }
}
/// Makes, of the magnitudes that all ranks found, a scale for each parameter, and the codes.
template <class Code, class Master>
void finish_codes(const Stream& stream, const GroupGeometry& group, const StoredElements& masters,
                  const StoredElements& codes, std::span<float> scales, std::span<const float> largest) {
    const std::size_t count = group.parameters.size();
    run_each(stream, count, MakeScale<Code>{largest.data(), group.shards, count, scales.data()});
    encode_parameters<Code, Master>(stream, group, masters, scales, codes);
}

}  // namespace shardkit::detail
