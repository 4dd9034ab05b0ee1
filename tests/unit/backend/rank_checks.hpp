// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include <shardkit/backend/threads/communicator.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>

#include "test_size.hpp"

namespace rank_checks {

using test_size::sanitized;

/// The bound on how long ranks may take to end after a failure.
inline constexpr std::chrono::seconds time_to_end{sanitized ? 30 : 1};

/// What concat() takes of a value: the text of a number that is not whole.
template <class T>
decltype(auto) piece(const T& value) {
    if constexpr (std::is_floating_point_v<T>) {
        return shardkit::detail::number_text(value);
    } else {
        return (value);
    }
}

/// For use on ranks' threads: the launch carries the exception to the test.
template <class... Pieces>
void expect(bool condition, const Pieces&... pieces) {
    if (!condition) { throw std::logic_error(shardkit::detail::concat("expected: ", piece(pieces)...)); }
}

/// An error that only a test throws.
struct Planted : std::runtime_error {
    using std::runtime_error::runtime_error;
};

enum class Kind { none, planted, peer, comm, other };

struct Outcome {
    Kind kind = Kind::none;
    std::string text;
    std::size_t rank = 0;  ///< of a PeerError
};

inline Outcome outcome(const std::exception_ptr& error) {
    if (!error) { return {}; }
    try {
        std::rethrow_exception(error);
    } catch (const shardkit::PeerError& e) {
        return {Kind::peer, e.what(), e.rank()};
    } catch (const shardkit::CommError& e) { return {Kind::comm, e.what(), 0}; } catch (const Planted& e) {
        return {Kind::planted, e.what(), 0};
    } catch (const std::exception& e) { return {Kind::other, e.what(), 0}; }
}

inline bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

template <class F>
std::chrono::steady_clock::duration duration_of(F f) {
    const auto begin = std::chrono::steady_clock::now();
    f();
    return std::chrono::steady_clock::now() - begin;
}

}  // namespace rank_checks
