// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <shardkit/checkpoint/checkpoint_files.hpp>
#include <shardkit/checkpoint/safetensors.hpp>
#include <shardkit/checkpoint/saved_group.hpp>
#include <shardkit/checkpoint/stored_as.hpp>
#include <shardkit/core/bf16.hpp>
#include <shardkit/core/block8.hpp>
#include <shardkit/core/codes.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/detail/range.hpp>
#include <shardkit/spi/optimizers.hpp>
#include <shardkit/spi/placement.hpp>

// States that a file stores otherwise than the optimizer does: numbers in place of blocks of 8 bits, and the other
// way round. A load reads the file's form into host memory and converts it.

namespace shardkit::detail {

/// The elements of the parameters that a load reads, relative to those that this rank updates.
inline List<IndexRange> read_elements(const SavedValues& values) {
    List<IndexRange> ranges;
    const GroupGeometry& group = values.geometry();
    for_each_segment(group.parameters, group.updated, [&](const Segment& segment) {
        if (values.is_read(segment.parameter)) { ranges.push_back(relative_to(segment.flat, group.updated.begin)); }
    });
    return ranges;
}

/// The codes of a state's numbers.
struct NearestCodes {
    bool square;

    float number(std::uint32_t code, float scale) const {
        return square ? Block8::decode<true>(code, scale) : Block8::decode<false>(code, scale);
    }
    std::uint8_t code(float number, float scale) const {
        return square ? code_of<true>(number, scale) : code_of<false>(number, scale);
    }
    bool are_codes(std::span<const float> numbers, float scale) const {
        return std::all_of(numbers.begin(), numbers.end(),
                           [&](float each) { return number(code(each, scale), scale) == each; });
    }
    /// Numbers become the nearest codes, so that those which came from codes become the same ones.
    float encode(std::span<const float> block, std::uint8_t* codes) const {
        float scale = Block8::scale(largest_magnitude(block.data(), block.size()));
        // Codes that were numbers in between have the scale of a largest number that was rounded down.
        if (!are_codes(block, scale) && are_codes(block, 2 * scale)) { scale *= 2; }
        for (std::size_t i = 0; i < block.size(); ++i) { codes[i] = code(block[i], scale); }
        return scale;
    }

  private:
    template <bool Square>
    static std::uint8_t code_of(float number, float scale) {
        constexpr std::uint32_t half = 1U << (Block8::drawn_bits<Square> - 1);
        return static_cast<std::uint8_t>(Block8::encode<Square>(number, Block8::inverse(scale), half));
    }
};

/// Returns the elements of a copy.
template <class T>
std::vector<T> elements_of_copy(std::span<const std::byte> copy, IndexRange elements) {
    std::vector<T> made(elements.size());
    if (!made.empty()) {
        std::memcpy(made.data(), copy.data() + elements.begin * sizeof(T), made.size() * sizeof(T));
    }
    return made;
}

/// Writes the numbers that a load has read into `copy` to a state in blocks of 8 bits.
inline void write_as_blocks(const SavedGroup& group, const SavedValues& read, std::span<const std::byte> copy,
                            const StoredElements& all_codes, const StoredElements& all_scales, NearestCodes nearest) {
    for (const IndexRange range : read_elements(read)) {
        const std::vector<float> numbers = elements_of_copy<float>(copy, range);
        std::vector<std::uint8_t> codes(numbers.size());
        std::vector<float> scales;
        for (std::size_t begin = 0; begin < numbers.size(); begin += Block8::block) {
            const std::size_t count = std::min(Block8::block, numbers.size() - begin);
            scales.push_back(nearest.encode(std::span(numbers).subspan(begin, count), codes.data() + begin));
        }
        group.copy_in(std::as_bytes(std::span(codes)), all_codes.subspan(range.begin, codes.size()));
        group.copy_in(std::as_bytes(std::span(scales)),
                      all_scales.subspan(range.begin / Block8::block, scales.size()));
    }
}
/// Writes the codes and scales that a load has read to a state that is kept as numbers.
template <class T>
void write_as_numbers(const SavedGroup& group, const SavedValues& codes, std::span<const std::byte> scales,
                      const StoredElements& all, NearestCodes nearest) {
    const std::vector<float> scale = elements_of_copy<float>(scales, {0, scales.size() / sizeof(float)});
    for (const IndexRange range : read_elements(codes)) {
        std::vector<T> numbers(range.size());
        for (std::size_t i = 0; i < numbers.size(); ++i) {
            const std::size_t element = range.begin + i;
            const float number =
                nearest.number(std::to_integer<std::uint32_t>(codes.copy()[element]), scale[element / Block8::block]);
            numbers[i] = static_cast<T>(static_cast<Arithmetic<T>>(number));
        }
        group.copy_in(std::as_bytes(std::span(numbers)), all.subspan(range.begin, numbers.size()));
    }
}

/// Returns what takes the place of a state's values for the parameters `of`, in its other form.
/// @throws std::invalid_argument where blocks of 8 bits would not lie in the rank's memory as they do in a file
inline List<std::unique_ptr<SavedValues>> other_form(const SavedGroup& group, const StateForm& form,
                                                     const List<char>& of, SourceLocation where) {
    const SavedValues& first = *group.values[form.first];
    const GroupGeometry& geometry = first.geometry();
    const StoredElements memory = first.values();
    const NearestCodes nearest{form.square};
    List<std::unique_ptr<SavedValues>> others;
    const auto add = [&](const StoredKind& kind, ElementType type) -> SavedValues::Copied& {
        return others.push_back(std::make_unique<SavedValues>(kind, type, geometry, of, SavedValues::Copied{}))
            ->copied();
    };
    if (form.in_blocks) {
        const StoredElements scales = group.values[form.first + 1]->values();
        auto& copied = add(first.kind, ElementType::fp32);
        copied.write = [&group, &read = *others.back(), memory, scales, nearest](std::span<const std::byte> copy) {
            write_as_blocks(group, read, copy, memory, scales, nearest);
        };
        return others;
    }
    require_blocks(geometry, of, where);
    add(first.kind, ElementType::uint8);
    const SavedValues& codes = *others.back();
    // Read after the codes.
    add({first.kind.role, first.kind.state, true}, ElementType::fp32).write =
        [&group, &codes, memory, nearest](std::span<const std::byte> scales) {
            const auto write = memory.type() == ElementType::fp64   ? &write_as_numbers<double>
                               : memory.type() == ElementType::fp32 ? &write_as_numbers<float>
                                                                    : &write_as_numbers<bf16>;
            write(group, codes, scales, memory, nearest);
        };
    return others;
}

/// Returns whether the files have a parameter's state in blocks of 8 bits; `otherwise` where they do not have it.
inline bool is_in_blocks(const SavedValues& values, std::size_t parameter, CheckpointFiles& files,
                         const checkpoint::TensorNames& names, bool otherwise, SourceLocation where) {
    for (const auto& [name, order] : values.stored(names, parameter, where)) {
        const auto* const found = files.find(values.kind.file(), name);
        if (found != nullptr) { return found->tensor.type == safetensors::DType::u8; }
    }
    return otherwise;
}

/// Shows each parameter's states in the form that the files have them in.
inline void choose_forms(const List<std::unique_ptr<SavedGroup>>& groups, CheckpointFiles& files,
                         const checkpoint::TensorNames& names, SourceLocation where) {
    for (const auto& group : groups) {
        for (const StateForm& form : group->forms) {
            const SavedValues& first = *group->values[form.first];
            List<char> others(first.of.size());
            for (std::size_t p = 0; p < others.size(); ++p) {
                if (first.of[p] == 0) { continue; }
                others[p] = is_in_blocks(first, p, files, names, form.in_blocks, where) != form.in_blocks ? 1 : 0;
            }
            if (!has(others, 1)) { continue; }
            for (std::unique_ptr<SavedValues>& other : other_form(*group, form, others, where)) {
                other->rule = first.rule;
                group->values.push_back(std::move(other));
            }
            for (std::size_t v = form.first; v < form.first + form.count(); ++v) {
                for (std::size_t p = 0; p < others.size(); ++p) {
                    if (others[p] != 0) { group->values[v]->of[p] = 0; }
                }
            }
        }
    }
}

}  // namespace shardkit::detail
