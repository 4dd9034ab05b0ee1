// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include <shardkit/core/checked.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/owned.hpp>
#include <shardkit/sharded/coded_view.hpp>
#include <shardkit/sharded/group_ref.hpp>

// clang's typestate attributes: with -Wconsumed, the use of a window after its end is a compile-time warning. A
// window that is passed by reference has an unknown state and may be used. Other compilers would warn about the
// attributes, so the macros are empty there.
#ifdef __clang__
#define SHARDKIT_CONSUMABLE [[clang::consumable(unconsumed)]]
#define SHARDKIT_RETURNS_UNCONSUMED [[clang::return_typestate(unconsumed)]]
#define SHARDKIT_CALLABLE_WHEN_UNCONSUMED [[clang::callable_when("unconsumed", "unknown")]]
#else
#define SHARDKIT_CONSUMABLE
#define SHARDKIT_RETURNS_UNCONSUMED
#define SHARDKIT_CALLABLE_WHEN_UNCONSUMED
#endif

namespace shardkit SHARDKIT_BUILD {

template <class Params, class Precision>
class PendingWindow;

/// A view of the full parameters, readable while it is open. It ends by `reshard(std::move(window))` or at the end of
/// its scope. Both are local work: no collective runs in a destructor. Several windows of one group may be open at
/// once.
template <class Params, class Precision>
class SHARDKIT_CONSUMABLE Window {
  public:
    /// Returns a view of the whole parameter P, in the gathered type; a CodedView where codes are gathered.
    /// @throws UsageError after the window's end
    template <class P>
    SHARDKIT_CALLABLE_WHEN_UNCONSUMED auto operator[](P) const& {
        constexpr bool in_group = Params::template contains<P>;
        static_assert(in_group, "Window: this parameter is not in the group");
        if constexpr (in_group) {
            if (!group_) { detail::refuse_use(opened_, "window used after its end; it was opened here"); }
            return whole(Params::template index<P>);
        }
    }
    /// Rejects a temporary window: it ends with the expression, and its parameters with it.
    template <class P>
    SHARDKIT_CALLABLE_WHEN_UNCONSUMED auto operator[](P parameter) const&& {
        constexpr bool kept = !std::is_same_v<P, P>;
        static_assert(kept,
                      "Window: this one ends before its parameters are used; keep it: const auto w = "
                      "layer.unshard();");
        return (*this)[parameter];
    }
    /// Returns a view of the whole parameter with that name or number.
    /// @throws UsageError after the window's end; std::invalid_argument when the group has no such parameter
    template <class NameOrNumber>
    SHARDKIT_CALLABLE_WHEN_UNCONSUMED auto view(const NameOrNumber& parameter,
                                                SourceLocation where = SourceLocation::current()) const& {
        if (!group_) { detail::refuse_use(where, "window used after its end"); }
        return whole(detail::number_in<Params>(*group_, parameter, where));
    }
    template <class NameOrNumber>
    void view(const NameOrNumber&, SourceLocation = SourceLocation::current()) const&& = delete;
    bool open() const noexcept { return static_cast<bool>(group_); }
    bool belongs_to(const detail::Group& group) const noexcept { return group_.get() == &group; }

  private:
    friend PendingWindow<Params, Precision>;
    SHARDKIT_RETURNS_UNCONSUMED Window(detail::Group& open_group, SourceLocation opened) noexcept
        : group_(&open_group), opened_(opened) {}

    /// With the scales where codes are gathered.
    auto whole(std::size_t parameter) const {
        using Gather = typename Precision::Gather;
        const detail::WholeElements its = detail::shown_parameter(*group_, parameter);
        const auto shown = its.view<const Gather>(opened_);
        if constexpr (Precision::gathers_codes) {
            return CodedView<Gather>(shown, its.scales);
        } else {
            return shown;
        }
    }

    detail::Owned<detail::Group, detail::close_window> group_;
    SourceLocation opened_;
};

/// A window whose gather is running. `wait()` returns the window; destroying this object ends it.
template <class Params, class Precision>
class PendingWindow {
  public:
    /// Of a group whose gather has begun.
    PendingWindow(detail::Group& open_group, SourceLocation opened) noexcept : group_(&open_group), opened_(opened) {}

    /// Returns the window.
    /// Order: later work on the compute stream sees the full parameters; the host does not wait.
    /// @throws UsageError where it was waited for before
    [[nodiscard]] Window<Params, Precision> wait() && {
        if (!group_) { detail::refuse_use(opened_, "window waited for twice; it was opened here"); }
        detail::use_window(*group_, opened_);
        return Window<Params, Precision>(*group_.release(), opened_);
    }

  private:
    detail::Owned<detail::Group, detail::drop_window> group_;
    SourceLocation opened_;
};

}  // namespace SHARDKIT_BUILD
