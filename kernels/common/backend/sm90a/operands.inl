// Rows of operands for instructions that take up to 128 registers.
//   KB_NUMBERS_n             "%0, %1, …" for the first n operands
//   KB_OPERANDS_n(c, v)      c(v[0]), c(v[1]), …: one asm operand for each of n elements
#pragma once

#define KB_NUMBERS_1 "%0"
#define KB_NUMBERS_2 "%0, %1"
#define KB_NUMBERS_4 KB_NUMBERS_2 ", %2, %3"
#define KB_NUMBERS_8 KB_NUMBERS_4 ", %4, %5, %6, %7"
// clang-format off
#define KB_NUMBERS_16 KB_NUMBERS_8 \
  ", %8, %9, %10, %11, %12, %13, %14, %15"
#define KB_NUMBERS_32 KB_NUMBERS_16 \
  ", %16, %17, %18, %19, %20, %21, %22, %23" \
  ", %24, %25, %26, %27, %28, %29, %30, %31"
#define KB_NUMBERS_64 KB_NUMBERS_32 \
  ", %32, %33, %34, %35, %36, %37, %38, %39" \
  ", %40, %41, %42, %43, %44, %45, %46, %47" \
  ", %48, %49, %50, %51, %52, %53, %54, %55" \
  ", %56, %57, %58, %59, %60, %61, %62, %63"
#define KB_NUMBERS_128 KB_NUMBERS_64 \
  ", %64, %65, %66, %67, %68, %69, %70, %71" \
  ", %72, %73, %74, %75, %76, %77, %78, %79" \
  ", %80, %81, %82, %83, %84, %85, %86, %87" \
  ", %88, %89, %90, %91, %92, %93, %94, %95" \
  ", %96, %97, %98, %99, %100, %101, %102, %103" \
  ", %104, %105, %106, %107, %108, %109, %110, %111" \
  ", %112, %113, %114, %115, %116, %117, %118, %119" \
  ", %120, %121, %122, %123, %124, %125, %126, %127"

#define KB_OPERANDS_FROM_1(c, v, i) c((v)[i])
#define KB_OPERANDS_FROM_2(c, v, i) \
  KB_OPERANDS_FROM_1(c, v, i), KB_OPERANDS_FROM_1(c, v, (i) + 1)
#define KB_OPERANDS_FROM_4(c, v, i) \
  KB_OPERANDS_FROM_2(c, v, i), KB_OPERANDS_FROM_2(c, v, (i) + 2)
#define KB_OPERANDS_FROM_8(c, v, i) \
  KB_OPERANDS_FROM_4(c, v, i), KB_OPERANDS_FROM_4(c, v, (i) + 4)
#define KB_OPERANDS_FROM_16(c, v, i) \
  KB_OPERANDS_FROM_8(c, v, i), KB_OPERANDS_FROM_8(c, v, (i) + 8)
#define KB_OPERANDS_FROM_32(c, v, i) \
  KB_OPERANDS_FROM_16(c, v, i), KB_OPERANDS_FROM_16(c, v, (i) + 16)
#define KB_OPERANDS_FROM_64(c, v, i) \
  KB_OPERANDS_FROM_32(c, v, i), KB_OPERANDS_FROM_32(c, v, (i) + 32)
#define KB_OPERANDS_FROM_128(c, v, i) \
  KB_OPERANDS_FROM_64(c, v, i), KB_OPERANDS_FROM_64(c, v, (i) + 64)
#define KB_OPERANDS_1(c, v) KB_OPERANDS_FROM_1(c, v, 0)
#define KB_OPERANDS_2(c, v) KB_OPERANDS_FROM_2(c, v, 0)
#define KB_OPERANDS_4(c, v) KB_OPERANDS_FROM_4(c, v, 0)
#define KB_OPERANDS_8(c, v) KB_OPERANDS_FROM_8(c, v, 0)
#define KB_OPERANDS_16(c, v) KB_OPERANDS_FROM_16(c, v, 0)
#define KB_OPERANDS_32(c, v) KB_OPERANDS_FROM_32(c, v, 0)
#define KB_OPERANDS_64(c, v) KB_OPERANDS_FROM_64(c, v, 0)
#define KB_OPERANDS_128(c, v) KB_OPERANDS_FROM_128(c, v, 0)
// clang-format on
