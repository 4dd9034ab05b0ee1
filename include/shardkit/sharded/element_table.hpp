// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string_view>
#include <type_traits>

#include <shardkit/backend/host/rank_order_reduction.hpp>
#include <shardkit/backend/host/reducer.hpp>
#include <shardkit/comm/call.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/core/checked.hpp>
#include <shardkit/core/split_float.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/kernels/norm_sum.hpp>
#include <shardkit/machine/step_machine.hpp>
#include <shardkit/memory/host_buffer.hpp>
#include <shardkit/memory/stored_elements.hpp>
#include <shardkit/policy/precision.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/sharded/coded_parameters.hpp>
#include <shardkit/sharded/group_buffer.hpp>
#include <shardkit/sharded/group_communicators.hpp>
#include <shardkit/sharded/group_geometry.hpp>
#include <shardkit/sharded/group_statements.hpp>
#include <shardkit/sharded/host_conversions.hpp>
#include <shardkit/sharded/tensor_value_source.hpp>
#include <shardkit/sharded/whole_tensor.hpp>

// What the stores of a group do with elements, by the elements' types.

namespace shardkit::detail SHARDKIT_BUILD {

/// The NaN that a checked build writes where a backward pass must overwrite: a sum with it stays this NaN.
template <FloatingElement T>
T unwritten() noexcept {
    return static_cast<T>(static_cast<Arithmetic<T>>(std::bit_cast<float>(std::uint32_t{0x7fe50000U})));
}
/// The bits of that NaN; 0 where T does not tell it from the one that arithmetic makes.
template <FloatingElement T>
std::uint64_t unwritten_bits() noexcept {
    const T made = static_cast<T>(std::numeric_limits<Arithmetic<T>>::quiet_NaN());
    const T mark = unwritten<T>();
    std::uint64_t bits = 0;
    if (std::memcmp(&made, &mark, sizeof(T)) != 0) { std::memcpy(&bits, &mark, sizeof(T)); }
    return bits;
}

/// Returns the ranges of a group's full gradients, of all sources, that must be zeroed: all that nobody overwrites.
inline List<IndexRange> zeroed_ranges(const GroupGeometry& geometry) {
    List<IndexRange> ranges;
    for (std::size_t source = 0; source < geometry.sources(); ++source) {
        const std::size_t begin = source * geometry.buffer_numel;
        std::size_t zeroed = 0;
        for (const PlacedParameter& p : geometry.parameters) {
            if (!p.leaves_unzeroed()) { continue; }
            if (zeroed < p.range.begin) { ranges.push_back({begin + zeroed, begin + p.range.begin}); }
            zeroed = p.range.end;
        }
        if (zeroed < geometry.buffer_numel) { ranges.push_back({begin + zeroed, begin + geometry.buffer_numel}); }
    }
    return ranges;
}

/// Adds the elements of `count` pieces to a sum: Kernels::norm_partial of their type.
using AddNormPieces = void (*)(const Stream& stream, const NormRun* pieces, std::size_t count, IndexRange positions,
                               const double* scale, double* into);

/// The element types of a group as values: which they are, and the functions of them that its stores call. A group of
/// other types has another table and the same stores, so a program has the functions of the types that it names.
struct ElementTable : PrecisionValues {
    using Elements = StoredElements;
    using Convert = void (*)(const Stream& stream, const Elements& from, const Elements& to);
    using Fill = void (*)(const Stream& stream, const Elements& to);
    /// How elements of one type are added to sums.
    struct Sums {
        Convert accumulate;
        const host::Reducer& (*reducer)() noexcept;  ///< for ranks that add them
    };

    /// Writes those of a parameter's values that lie in `target`, which begins with element `origin` of the flat
    /// order. `digest`, unless null, takes the written values.
    void (*write)(const Rank& rank, const PlacedParameter& parameter, WrittenAs how, const Elements& target,
                  std::size_t origin, const TensorValueSource& values, ValuesDigest* digest);
    void (*digest_gathered)(ValuesDigest& digest, const Elements& values);
    Convert to_masters;    ///< from gathered elements; null where there are none, or codes
    Convert to_gathered;   ///< from masters; null likewise
    Convert to_sums;       ///< from gradients
    Fill zero;             ///< gradients
    Widen widen_gathered;  ///< the numbers of codes where those are gathered
    Widen widen_sums;
    Sums gradients;
    Sums sums;  ///< of the reduction type itself
    void (*digest_sums)(ValuesDigest& digest, const Elements& values);
    /// Adds the norms of some sums to `into`; see norm_sum.hpp.
    void (*add_norms)(const Stream& stream, const Elements& sums, const double* scale, PartialNorms* lanes,
                      PartialNorms* into, bool copies);
    AddNormPieces norm_partial;

    /// The number of which parameters that are codes without scales are multiples; 0 for others.
    double code_scale;
    /// Write masters as split ones, and split ones joined; null where they cannot be.
    void (*split)(const Stream& stream, const Elements& masters, const Elements& upper, const Elements& lower);
    void (*join)(const Stream& stream, const Elements& upper, const Elements& lower, const Elements& masters);

    HostConversions on_host;

    // Of codes; else null. See coded_parameters.hpp.
    void (*begin_codes)(const Stream& stream, const GroupGeometry& group, const Elements& masters,
                        const Elements& codes, std::span<float> scales, bool begun, std::span<float> largest);
    void (*finish_codes)(const Stream& stream, const GroupGeometry& group, const Elements& masters,
                         const Elements& codes, std::span<float> scales, std::span<const float> largest);
    void (*decode)(const Stream& stream, const Elements& codes, const float* scales, const Elements& to);

    // Of a checked build; else null.
    Fill close;           ///< with what full parameters are once they may not be read any more
    Fill mark_unwritten;  ///< as `unwritten`
    std::uint64_t (*unwritten_bits)() noexcept;
};

template <class Addend, class Sum>
constexpr ElementTable::Sums sums_of() {
    using Kernels = host::AnyKernels;
    ElementTable::Sums sums{};
    sums.reducer = &host::detail::reducer<Addend, Sum>;
    sums.accumulate = [](const auto& stream, const auto& addend, const auto& total) {
        Kernels::accumulate(stream, std::span<const Addend>(addend), std::span<Sum>(total));
    };
    return sums;
}
template <class Precision>
constexpr ElementTable element_table_of() {
    using Gather = typename Precision::Gather;
    using Gradient = typename Precision::Gradient;
    using Reduction = typename Precision::Reduction;
    using Master = typename Precision::Master;
    using Kernels = host::AnyKernels;
    ElementTable table{};
    static_cast<PrecisionValues&>(table) = precision_values<Precision>;
    table.code_scale = scale_of<typename Precision::Written>;
    table.on_host = host_conversions<typename Kernels::Loops, Precision>();
    table.write = [](const auto& rank, const auto& parameter, WrittenAs how, const auto& target, std::size_t origin,
                     const auto& values, ValuesDigest* digest) {
        in_form<Precision>(how, target, [&](auto elements, auto rounding) {
            write_rounded<decltype(rounding)>(rank, parameter, elements, origin, values, digest);
        });
    };
    table.digest_gathered = [](ValuesDigest& digest, const auto& values) {
        digest.add(0, std::span<const Gather>(values));
    };
    table.to_sums = [](const auto& stream, const auto& from, const auto& to) {
        Kernels::convert(stream, std::span<const Gradient>(from), std::span<Reduction>(to));
    };
    table.zero = [](const auto& stream, const auto& to) {
        Kernels::fill(stream, std::span<Gradient>(to), Gradient{});
    };
    table.widen_gathered = &widen<std::conditional_t<Precision::gathers_codes, float, Gather>>;
    table.widen_sums = &widen<Reduction>;
    table.gradients = sums_of<Gradient, Reduction>();
    table.sums = sums_of<Reduction, Reduction>();
    table.digest_sums = [](ValuesDigest& digest, const auto& values) {
        digest.add(0, std::span<const Reduction>(values));
    };
    table.add_norms = [](const auto& stream, const auto& sums, const double* scale, PartialNorms* lanes,
                         PartialNorms* into, bool copies) {
        using Work = AddPartialNorms<Reduction>;
        // A host goes through them once.
        const std::uint64_t count = host_reads(stream) ? 1 : Work::lanes_of(sums.size());
        run_each(stream, count, Work{sums, count, scale, lanes});
        Kernels::run_once(stream, FoldPartialNorms{std::span<const PartialNorms>(lanes, count), into, copies});
    };
    table.norm_partial = [](const auto& stream, const NormRun* pieces, std::size_t count, IndexRange positions,
                            const double* scale, double* into) {
        using Typed = engine::NormPiece<Reduction>;
        static_assert(sizeof(Typed) == sizeof(NormRun));
        const std::span<const Typed> typed(reinterpret_cast<const Typed*>(pieces), count);
        Kernels::norm_partial(stream, typed, positions, scale, into);
    };
    if constexpr (can_split_master<Precision>) {
        table.split = [](const auto& stream, const auto& masters, const auto& upper, const auto& lower) {
            run_each(stream, masters.size(),
                     SplitWork<Gather>{std::span<const float>(masters).data(), std::span<Gather>(upper).data(),
                                       static_cast<std::uint16_t*>(lower.data())});
        };
        table.join = [](const auto& stream, const auto& upper, const auto& lower, const auto& masters) {
            run_each(
                stream, masters.size(),
                JoinWork<Gather>{std::span<const Gather>(upper).data(),
                                 static_cast<const std::uint16_t*>(lower.data()), std::span<float>(masters).data()});
        };
    }
    if constexpr (Precision::gathers_codes) {
        table.begin_codes = &begin_codes<Gather, Master>;
        table.decode = [](const auto& stream, const auto& codes, const float* scales, const auto& to) {
            run_each(
                stream, codes.size(),
                DecodeElement<Gather>{std::span<const Gather>(codes).data(), scales, std::span<float>(to).data()});
        };
        if constexpr (!codes_in_blocks<Gather>) { table.finish_codes = &finish_codes<Gather, Master>; }
    } else if constexpr (Precision::has_master) {
        table.to_masters = [](const auto& stream, const auto& from, const auto& to) {
            Kernels::convert(stream, std::span<const Gather>(from), std::span<Master>(to));
        };
        table.to_gathered = [](const auto& stream, const auto& from, const auto& to) {
            Kernels::convert(stream, std::span<const Master>(from), std::span<Gather>(to));
        };
    }
    if constexpr (checked) {
        table.close = [](const auto& stream, const auto& to) {
            Kernels::fill(stream, std::span<Gather>(to), closed_value<Gather>());
        };
        table.mark_unwritten = [](const auto& stream, const auto& to) {
            Kernels::fill(stream, std::span<Gradient>(to), unwritten<Gradient>());
        };
        table.unwritten_bits = &unwritten_bits<Gradient>;
    }
    return table;
}
/// The table of a precision.
template <class Precision>
inline constexpr ElementTable element_table = element_table_of<Precision>();

/// What both stores of a group use of it.
struct StoreParts {
    using Buffer = HostBuffer<std::uint8_t>;

    Rank* rank_;
    const GroupGeometry* geometry_;
    const ElementTable* elements_;
    GroupStatements* statements_;
    GroupStep* step_;
    GroupCommunicators comms_;

    const engine::CallSubject* subject(std::string_view what) const {
        return subject_of(comms_.data, concat("'", geometry_->path, "' ", what));
    }
    Buffer buffer(std::string_view what, std::size_t bytes, bool offloaded = false) const {
        return group_buffer<std::uint8_t>(*rank_, geometry_->path, what, bytes, offloaded);
    }
    SlotLease lease(SlotPurpose purpose, std::size_t bytes) const {
        return group_lease(*rank_, *geometry_, purpose, bytes);
    }
};

}  // namespace shardkit::detail SHARDKIT_BUILD
