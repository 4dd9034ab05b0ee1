// SPDX-License-Identifier: Apache-2.0
// Macros of a code base, which are its own again behind the header.
#define check(x) (x)
#define CEIL_DIV(M, N) (((M) + (N)-1) / (N))
#define min(a, b) ((a) < (b) ? (a) : (b))
#define max(a, b) ((a) > (b) ? (a) : (b))
// Of complex.h, X11, windows.h and rpc.h.
#define I 1.0iF
#define None 0L
#define Bool int
#define Status int
#define Success 0
#define Always 2
#define True 1
#define False 0
#define TRUE 1
#define FALSE 0
#define ERROR 0
#define IN
#define OUT
#define far
#define near
#define small char
#define interface struct
#include <shardkit/shardkit.hpp>

#include "use.hpp"

int count_in_another_unit() { return check(min(3, static_cast<int>(shardkit::DeviceMesh<2, 1, 1>{}.size()))); }
