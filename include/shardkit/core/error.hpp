// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/concat.hpp>

namespace shardkit {

namespace detail {

/// Returns "train.cpp:12". If the standard library made the call, in emplace_back or make_unique for example, the
/// line is one of that library's. The text then says how to get the user's line instead.
inline std::string place(SourceLocation where) {
    const std::string_view file = where.file;
    if (file.find("/include/c++/") != std::string_view::npos) {
        return "a line that emplace_back, make_unique or the like hides: write push_back({...}), or pass "
               "SourceLocation::current() last";
    }
    return concat(file, ":", where.line);
}

}  // namespace detail

/// Reports that a collective or point-to-point call failed. The text names the engine, the call, the engine's own
/// error and the user's file and line.
class CommError : public std::runtime_error {
  public:
    CommError(std::string_view engine, std::string_view call, std::string_view what_happened, SourceLocation where)
        : std::runtime_error(detail::concat(engine, ": ", call, " at ", detail::place(where), ": ", what_happened)),
          engine_(engine),
          call_(call),
          where_(where) {}

    const std::string& engine() const noexcept { return engine_; }
    const std::string& call() const noexcept { return call_; }
    SourceLocation where() const noexcept { return where_; }

  private:
    std::string engine_;
    std::string call_;
    SourceLocation where_;
};

/// Reports that another rank failed, returned early or does not answer, so that this rank's call cannot complete.
/// `rank()` is that rank's number in the world.
class PeerError : public CommError {
  public:
    PeerError(std::string_view engine, std::string_view call, std::size_t peer_rank, std::string_view what_happened,
              SourceLocation where)
        : CommError(engine, call, what_happened, where), rank_(peer_rank) {}

    std::size_t rank() const noexcept { return rank_; }

  private:
    std::size_t rank_;
};

/// Reports that the library was called in an invalid order: a handle added twice, a window used after its end, a
/// reduction without gradients. The text names the user's file and line of the call or, where C++ leaves no room for
/// it (operator[]), of the call that returned the misused object.
class UsageError : public std::logic_error {
  public:
    UsageError(std::string_view what_happened, SourceLocation where)
        : std::logic_error(detail::concat(what_happened, " (", detail::place(where), ")")), where_(where) {}

    SourceLocation where() const noexcept { return where_; }

  private:
    SourceLocation where_;
};

/// Reports that a file cannot be opened, read or written, or has invalid content. The text names the file, what was
/// expected, and the user's file and line.
class FileError : public std::runtime_error {
  public:
    FileError(std::string path, std::string_view what_happened, SourceLocation where)
        : std::runtime_error(detail::concat("'", path, "': ", what_happened, " (", detail::place(where), ")")),
          path_(std::move(path)),
          what_happened_(what_happened),
          where_(where) {}

    const std::string& path() const noexcept { return path_; }
    /// Returns the message without the file and the caller's line.
    const std::string& what_happened() const noexcept { return what_happened_; }
    SourceLocation where() const noexcept { return where_; }

  private:
    std::string path_;
    std::string what_happened_;
    SourceLocation where_;
};

}  // namespace shardkit

namespace shardkit::detail SHARDKIT_FORM {

[[noreturn]] void throw_argument(SourceLocation where, const Piece* pieces, std::size_t count);
[[noreturn]] void throw_usage(SourceLocation where, const Piece* pieces, std::size_t count);
[[noreturn]] void throw_file(std::string_view path, SourceLocation where, const Piece* pieces, std::size_t count);

#ifndef SHARDKIT_COMPILED
[[noreturn, gnu::cold]] SHARDKIT_CORE_INLINE void throw_argument(SourceLocation where, const Piece* pieces,
                                                                 std::size_t count) {
    throw std::invalid_argument(concat(joined(pieces, count), " (", place(where), ")"));
}
[[noreturn, gnu::cold]] SHARDKIT_CORE_INLINE void throw_usage(SourceLocation where, const Piece* pieces,
                                                              std::size_t count) {
    throw UsageError(joined(pieces, count), where);
}
[[noreturn, gnu::cold]] SHARDKIT_CORE_INLINE void throw_file(std::string_view path, SourceLocation where,
                                                             const Piece* pieces, std::size_t count) {
    throw FileError(std::string(path), joined(pieces, count), where);
}
#endif

}  // namespace shardkit::detail SHARDKIT_FORM

namespace shardkit {

namespace detail {

/// Throws FileError about the file at `path`, with a message made of `pieces`.
template <class... Pieces>
[[noreturn, gnu::always_inline]] inline void throw_file_error(std::string_view path, SourceLocation where,
                                                              const Pieces&... pieces) {
    const Piece list[] = {Piece(pieces)...};
    throw_file(path, where, list, sizeof...(Pieces));
}

}  // namespace detail

/// Throws std::invalid_argument with a message made of `pieces`, and the caller's file and line.
template <class... Pieces>
[[noreturn, gnu::always_inline]] inline void throw_invalid_argument(SourceLocation where, const Pieces&... pieces) {
    const detail::Piece list[] = {detail::Piece(pieces)...};
    detail::throw_argument(where, list, sizeof...(Pieces));
}
/// Throws it unless the argument `holds` what is asked of it. The pieces are made in any case.
template <class... Pieces>
[[gnu::always_inline]] constexpr void require_argument(bool holds, SourceLocation where, const Pieces&... pieces) {
    if (!holds) [[unlikely]] { throw_invalid_argument(where, pieces...); }
}

/// Throws UsageError with a message made of `pieces`, and the caller's file and line.
template <class... Pieces>
[[noreturn, gnu::always_inline]] inline void throw_usage_error(SourceLocation where, const Pieces&... pieces) {
    const detail::Piece list[] = {detail::Piece(pieces)...};
    detail::throw_usage(where, list, sizeof...(Pieces));
}

}  // namespace shardkit
