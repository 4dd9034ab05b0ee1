// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <shardkit/checkpoint/values_by_kind.hpp>
#include <shardkit/core/block8.hpp>
#include <shardkit/core/codes.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/layout/segments.hpp>
#include <shardkit/optim/state_kind.hpp>
#include <shardkit/optim/state_storage.hpp>

// States that a file stores otherwise than the optimizer does: numbers in place of blocks of 8 bits, and the other
// way round. A load reads the file's form into host memory and converts it.

namespace shardkit::detail {

/// Codes or scales from a file, for a state that is kept as numbers.
template <class T>
struct LoadedPart final : CopiedValues<T> {
    using CopiedValues<T>::CopiedValues;
    using CopiedValues<T>::copy;
};

/// The elements of the parameters that a load reads, relative to those that this rank updates.
inline List<IndexRange> read_elements(const SavedValues& values) {
    List<IndexRange> ranges;
    const GroupGeometry& group = values.geometry();
    for_each_segment(group.parameters, group.updated, [&](const Segment& segment) {
        if (values.is_read(segment.parameter)) { ranges.push_back(relative_to(segment.flat, group.updated.begin)); }
    });
    return ranges;
}

inline float number_of_code(bool square, std::uint32_t code, float scale) {
    return square ? Block8::decode<true>(code, scale) : Block8::decode<false>(code, scale);
}

/// A state in blocks of 8 bits, whose file has numbers. Numbers become the nearest codes, so that those which came
/// from codes become the same ones.
template <class Engine>
class NumbersOfBlocks final : public CopiedValues<float> {
  public:
    NumbersOfBlocks(Context<Engine>& context, const SavedValues& codes, const List<char>& parameters,
                    rules::Block8Span memory, bool square)
        : CopiedValues<float>(codes.kind, codes.geometry(), parameters),
          context_(context),
          memory_(memory),
          square_(square) {}

    void end_load() override {
        const auto stream = context_.compute_stream();
        for (const IndexRange range : read_elements(*this)) {
            const rules::Block8Span to = memory_.subspan(range.begin, range.size());
            std::vector<std::uint8_t> codes(to.codes.size());
            std::vector<float> scales(to.scales.size());
            for (std::size_t block = 0; block < scales.size(); ++block) {
                const std::size_t begin = block * Block8::block;
                const std::span numbers =
                    copy().subspan(range.begin + begin, std::min(Block8::block, range.size() - begin));
                float& scale = scales[block];
                scale = Block8::scale(largest_magnitude(numbers.data(), numbers.size()));
                // Codes that were numbers in between have the scale of a largest number that was rounded down.
                if (!are_codes(numbers, scale) && are_codes(numbers, 2 * scale)) { scale *= 2; }
                for (std::size_t i = 0; i < numbers.size(); ++i) { codes[begin + i] = code(numbers[i], scale); }
            }
            Engine::Kernels::copy_in(stream, std::span<const std::uint8_t>(codes), to.codes);
            Engine::Kernels::copy_in(stream, std::span<const float>(scales), to.scales);
        }
        release();
    }

  private:
    /// Returns the nearest code.
    std::uint8_t code(float number, float scale) const {
        return square_ ? code_of<true>(number, scale) : code_of<false>(number, scale);
    }
    template <bool Square>
    static std::uint8_t code_of(float number, float scale) {
        constexpr std::uint32_t half = 1U << (Block8::drawn_bits<Square> - 1);
        return static_cast<std::uint8_t>(Block8::encode<Square>(number, Block8::inverse(scale), half));
    }
    bool are_codes(std::span<const float> numbers, float scale) const {
        return std::all_of(numbers.begin(), numbers.end(), [&](float number) {
            return number_of_code(square_, code(number, scale), scale) == number;
        });
    }

    Context<Engine>& context_;
    rules::Block8Span memory_;
    bool square_;
};

/// The scales of a state that is kept as numbers of type T, whose file has codes and scales. They are read after the
/// codes.
template <class Engine, class T>
class BlocksOfNumbers final : private GroupGeometry, public CopiedValues<float> {
  public:
    BlocksOfNumbers(Context<Engine>& context, const LoadedPart<std::uint8_t>& codes, std::span<T> memory, bool square)
        : GroupGeometry(blocks_of(codes.geometry())),
          CopiedValues<float>({codes.kind.role, codes.kind.state, true}, static_cast<const GroupGeometry&>(*this),
                              codes.of),
          context_(context),
          codes_(codes),
          memory_(memory),
          square_(square) {
        this->name_as(codes.geometry());
    }

    void end_load() override {
        const auto stream = context_.compute_stream();
        for (const IndexRange range : read_elements(codes_)) {
            std::vector<T> numbers(range.size());
            for (std::size_t i = 0; i < numbers.size(); ++i) {
                const std::size_t element = range.begin + i;
                const float number = number_of_code(square_, codes_.copy()[element], copy()[element / Block8::block]);
                numbers[i] = static_cast<T>(static_cast<Arithmetic<T>>(number));
            }
            Engine::Kernels::copy_in(stream, std::span<const T>(numbers), memory_.subspan(range.begin, range.size()));
        }
        release();
    }

  private:
    Context<Engine>& context_;
    const LoadedPart<std::uint8_t>& codes_;
    std::span<T> memory_;
    bool square_;
};

/// Returns the form of a state in blocks of 8 bits, which a load can show as numbers.
template <class Engine>
StateForm state_form(Context<Engine>& context, std::size_t first, rules::Block8Span memory, bool square) {
    return {first, true,
            [&context, memory, square](const SavedValues& codes, const List<char>& of, SourceLocation /*where*/) {
                List<std::unique_ptr<SavedValues>> numbers;
                numbers.push_back(std::make_unique<NumbersOfBlocks<Engine>>(context, codes, of, memory, square));
                return numbers;
            }};
}
/// Returns the form of a state that is kept as numbers, which a load can show as codes and scales.
template <class Engine, class T>
StateForm state_form(Context<Engine>& context, std::size_t first, std::span<T> memory, bool square) {
    return {first, false,
            [&context, memory, square](const SavedValues& values, const List<char>& of, SourceLocation where) {
                require_blocks(values.geometry(), of, where);
                auto codes = std::make_unique<LoadedPart<std::uint8_t>>(values.kind, values.geometry(), of);
                auto scales = std::make_unique<BlocksOfNumbers<Engine, T>>(context, *codes, memory, square);
                List<std::unique_ptr<SavedValues>> both;
                both.push_back(std::move(codes));
                both.push_back(std::move(scales));
                return both;
            }};
}

}  // namespace shardkit::detail
