// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <span>

#include <shardkit/core/codes.hpp>
#include <shardkit/param/tensor_view.hpp>

namespace shardkit SHARDKIT_BUILD {

/// A view of a parameter that was gathered as codes with scales: what a window of such a group gives. It refers to
/// the memory of a window and must not outlive it. Codes do not convert to numbers; products of 8-bit matrices take
/// `codes` and `scales` as they are.
template <class Code>
class CodedView {
  public:
    static constexpr std::size_t block = detail::CodeFormat<Code>::block;

    CodedView(TensorView<const Code> codes, const float* scales) noexcept : codes_(codes), scales_(scales) {}

    /// The codes, a row-major tensor.
    TensorView<const Code> codes() const noexcept { return codes_; }
    /// The scales, which decoded codes are multiplied by: one for the parameter, or one for each `block` of its
    /// elements in row-major order. The engine's memory.
    std::span<const float> scales() const {
        static_cast<void>(codes_.data());  // in a checked build, that the window is open
        return {scales_, codes_.size() == 0 ? 0 : detail::scale_number<Code>(codes_.size() - 1) + 1};
    }
    std::size_t size() const noexcept { return codes_.size(); }
    const TensorShape& shape() const noexcept { return codes_.shape(); }

    /// Returns the number of element i in row-major order. @pre the host reads the engine's memory
    template <std::integral Integer>
    float decoded(Integer i) const {
        const auto at = static_cast<std::size_t>(i);
        return detail::CodeFormat<Code>::decode(codes_[at], scales_[detail::scale_number<Code>(at)]);
    }

  private:
    TensorView<const Code> codes_;
    const float* scales_;
};

}  // namespace shardkit SHARDKIT_BUILD
