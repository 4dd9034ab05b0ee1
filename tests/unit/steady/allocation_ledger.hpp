// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

#include "unit/steady/allocation_account.hpp"

/// The allocation functions of this program, replaced. Included by one source of a program.
namespace steady {

/// Of all threads.
inline std::atomic<std::size_t> allocations_of_all{0};

/// In front of each block.
struct Header {
    std::size_t bytes : 62;
    std::size_t is_buffer : 1;
    std::size_t counts_as_buffer : 1;
    void* base;
};
static_assert(sizeof(Header) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);

inline void* allocate(std::size_t bytes, std::size_t alignment) {
    void* const base = std::malloc(bytes + 2 * alignment);
    if (base == nullptr) { throw std::bad_alloc(); }
    void* place = static_cast<std::byte*>(base) + alignment;  // room for the header, which is at most as long
    std::size_t space = bytes + alignment;
    place = std::align(alignment, bytes, place, space);
    const bool is_buffer = alignment >= 128;
    const bool counts_as_buffer = is_buffer && account.off_account == 0;
    ::new (static_cast<void*>(static_cast<std::byte*>(place) - sizeof(Header)))
        Header{bytes & (~std::size_t{0} >> 2U), is_buffer ? 1U : 0U, counts_as_buffer ? 1U : 0U, base};
    ++account.allocations;
    ++allocations_of_all;
    account.current += bytes;
    account.peak = std::max(account.peak, account.current);
    if (bytes >= Account::large) {
        account.large_bytes += bytes;
        ++account.large_blocks;
        if (is_buffer) { account.large_buffer_bytes += bytes; }
    }
    if (counts_as_buffer) {
        account.buffer_bytes += bytes;
        account.buffer_peak = std::max(account.buffer_peak, account.buffer_bytes);
    }
    return place;
}
inline void release(void* place) noexcept {
    if (place == nullptr) { return; }
    const Header header = *std::launder(reinterpret_cast<Header*>(static_cast<std::byte*>(place) - sizeof(Header)));
    account.current -= header.bytes;
    if (header.bytes >= Account::large) {
        account.large_bytes -= header.bytes;
        --account.large_blocks;
        if (header.is_buffer != 0) { account.large_buffer_bytes -= header.bytes; }
    }
    if (header.counts_as_buffer != 0) { account.buffer_bytes -= header.bytes; }
    std::free(header.base);
}

}  // namespace steady

// The other forms (arrays, no-throw) end in these by default.
void* operator new(std::size_t bytes) { return steady::allocate(bytes, __STDCPP_DEFAULT_NEW_ALIGNMENT__); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
    return steady::allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* place) noexcept { steady::release(place); }
void operator delete(void* place, std::size_t) noexcept { steady::release(place); }
void operator delete(void* place, std::align_val_t) noexcept { steady::release(place); }
void operator delete(void* place, std::size_t, std::align_val_t) noexcept { steady::release(place); }
