// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>

#include <shardkit/checkpoint/saved_group.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/memory/memory_copies.hpp>

namespace shardkit::detail {

/// Copies elements of `size` bytes that lie a stride apart on each side.
inline void copy_strided(std::size_t size, std::size_t count, const std::byte* from, std::size_t from_stride,
                         std::byte* to, std::size_t to_stride) {
    if (from_stride == 1 && to_stride == 1) {
        std::memcpy(to, from, count * size);
        return;
    }
    with_word(size, [&](auto element) {
        for (std::size_t i = 0; i < count; ++i) {
            std::memcpy(to + i * to_stride * sizeof element, from + i * from_stride * sizeof element, sizeof element);
        }
    });
}

/// Reads and writes elements of values, wherever they lie.
class ValueMemory {
  public:
    explicit ValueMemory(SourceLocation where) : where_(where) {}

    /// Copies `count` elements from `flat` on, a stride apart, to the host.
    void read(const SavedValues& values, std::size_t flat, std::size_t stride, std::size_t count, std::byte* to) {
        const std::size_t size = size_of(values.type);
        for_each_span(values, flat, stride, count, true, [&](std::byte* memory, std::size_t first, std::size_t n) {
            copy_strided(size, n, memory, stride, to + first * size, 1);
        });
    }
    /// Writes elements that make(first, n, to) makes, in parts.
    template <class Make>
    void write(const SavedValues& values, std::size_t flat, std::size_t stride, std::size_t count, const Make& make) {
        const std::size_t size = size_of(values.type);
        for_each_span(values, flat, stride, count, false, [&](std::byte* memory, std::size_t first, std::size_t n) {
            write_strided(memory, size, stride, n,
                          [&](std::size_t done, std::size_t part, std::byte* to) { make(first + done, part, to); });
        });
    }
    /// Writes elements likewise from `to` on, which the host can write.
    template <class Make>
    static void write_strided(std::byte* to, std::size_t size, std::size_t stride, std::size_t count,
                              const Make& make) {
        if (stride == 1) { return make(0, count, to); }
        std::array<std::byte, 4096> made;
        for (std::size_t done = 0; done < count; done += made.size() / size) {
            const std::size_t part = std::min(made.size() / size, count - done);
            make(done, part, made.data());
            copy_strided(size, part, made.data(), 1, to + done * stride * size, stride);
        }
    }
    /// Waits for the copies that are still on their way.
    void finish() {
        for (std::size_t slot = 0; copies_ != nullptr && slot < engine::MemoryCopies::slots; ++slot) {
            copies_->finish(slot);
        }
    }

  private:
    /// Calls f(memory, first, n) for memory that the host accesses, which has elements `first` to `first + n`.
    template <class F>
    void for_each_span(const SavedValues& values, std::size_t flat, std::size_t stride, std::size_t count, bool reads,
                       const F& f) {
        if (values.on_host) {
            f(values.memory(flat), 0, count);
            return;
        }
        if (copies_ == nullptr) { copies_ = values.holder->copies(where_); }
        const std::size_t size = size_of(values.type);
        const std::size_t most = std::max<std::size_t>(copies_->capacity() / (size * stride), 1);
        for (std::size_t first = 0; first < count; first += most) {
            const std::size_t n = std::min(most, count - first);
            const std::size_t bytes = ((n - 1) * stride + 1) * size;
            std::byte* const device = values.memory(flat + first * stride);
            // What lies between the elements of a stride is written back as it is.
            if (reads || stride > 1) { copies_->begin_read(slot_, {device, bytes}); }
            f(copies_->finish(slot_).data(), first, n);
            if (!reads) {
                copies_->begin_write(slot_, {device, bytes});
                if (stride > 1) { copies_->finish(slot_); }  // the next elements may lie between these
                slot_ = (slot_ + 1) % engine::MemoryCopies::slots;
            }
        }
    }

    SourceLocation where_;
    std::unique_ptr<engine::MemoryCopies> copies_;
    std::size_t slot_ = 0;
};

}  // namespace shardkit::detail
