// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <new>
#include <type_traits>

namespace shardkit::host::detail {

/// Keeps a function in place that is called later: nothing is allocated, and one that was never called may be
/// dropped.
template <class... Args>
class Command {
  public:
    static constexpr std::size_t bytes = 320;

    /// Copies the function.
    template <class F>
    void set(const F& function) noexcept {
        static_assert(sizeof(F) <= bytes, "the command captures more than a slot of a queue holds");
        static_assert(alignof(F) <= alignof(std::max_align_t) && std::is_trivially_destructible_v<F>);
        ::new (static_cast<void*>(function_.data())) F(function);
        call_ = [](void* at, Args... args) { (*std::launder(static_cast<F*>(at)))(args...); };
    }
    /// Calls the function.
    /// @throws what the function does
    void operator()(Args... args) { call_(function_.data(), args...); }

  private:
    void (*call_)(void*, Args...) = nullptr;
    alignas(std::max_align_t) std::array<std::byte, bytes> function_;
};

}  // namespace shardkit::host::detail
